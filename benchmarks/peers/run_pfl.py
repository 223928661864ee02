"""pfl-research: FederatedAveraging on a SimulatedBackend, as its tutorials write it.

FedPer is an algorithm of its own that keeps heads in a user state storage. Under `torchrun` users are divided among
processes; FedPer's storage in memory is made for one process only.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.common_types import Population
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.exception import UserNotFoundError
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_default_framework_module
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.version import __version__
from task import RATE, arguments, clients, num_steps, tell
from torch.nn import functional as F
from torch_net import Net

NO_EVALUATION = 10**6


class PflNet(Net):
    """The network with what pfl asks of one: a loss and metrics of a batch."""

    def loss(self, inputs: torch.Tensor, targets: torch.Tensor, eval: bool = False) -> torch.Tensor:
        self.train(not eval)
        return F.cross_entropy(self(inputs), targets)

    def metrics(self, inputs: torch.Tensor, targets: torch.Tensor, eval: bool = False) -> dict[str, Any]:
        self.train(not eval)
        with torch.no_grad():
            output = self(inputs)
            total = F.cross_entropy(output, targets, reduction="sum").item()
            right = (output.argmax(dim=1) == targets).sum().item()
        return {"loss": Weighted(total, len(targets)), "accuracy": Weighted(right, len(targets))}


class OnlyEvaluates:
    """An iteration is one evaluation of all users on their test examples."""

    def get_next_central_contexts(self, *given: Any, **named: Any) -> Any:
        contexts, model, metrics = super().get_next_central_contexts(*given, **named)  # type: ignore[misc]
        if contexts is not None:
            contexts = tuple(context for context in contexts if context.population == Population.VAL)
        return contexts, model, metrics

    def process_aggregated_statistics_from_all_contexts(self, pairs: Any, metrics: Metrics, model: Any) -> Any:
        assert not pairs
        return model, Metrics()


class FedPer(FederatedAveraging):
    """Each user keeps its head; only the body's change is averaged."""

    def __init__(self, network: Net) -> None:
        super().__init__()
        self.network, self.heads = network, InMemoryUserStateStorage()
        self.first = copied(network.head)

    def simulate_one_user(self, model: Any, user_dataset: Any, central_context: Any) -> Any:
        at_server = copied(self.network.head)
        try:
            own = self.heads.load_state(user_dataset.user_id, "head")
        except UserNotFoundError:
            own = self.first
            self.heads.save_state(own, user_dataset.user_id, "head")
        self.network.head.load_state_dict(own)
        found = super().simulate_one_user(model, user_dataset, central_context)
        self.network.head.load_state_dict(at_server)
        return found

    def train_one_user(self, initial_model_state: Any, model: Any, user_dataset: Any, central_context: Any) -> Any:
        before = copied(self.network.head)
        model.do_multiple_epochs_of(user_dataset, central_context.model_train_params, train_step)
        self.heads.save_state(copied(self.network.head), user_dataset.user_id, "head")
        self.network.head.load_state_dict(before)  # so that its difference is zero
        return model.get_model_difference(initial_model_state), Metrics()


class EvaluatesShared(OnlyEvaluates, FederatedAveraging):
    """One model for all."""


class EvaluatesPersonal(OnlyEvaluates, FedPer):
    """Each with the user's head."""


def train_step(network: Net, optimizer: Any, raw_data: Any, train_kwargs: Any, args: Any) -> None:
    optimizer.zero_grad()
    network.loss(*raw_data, **train_kwargs).backward()
    optimizer.step()


def copied(layer: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in layer.state_dict().items()}


class Clock(TrainingProcessCallback):
    """Notes when each central iteration has ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        self.ends.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    asked = arguments()
    population = clients(asked.data)
    users = {
        str(number): [torch.from_numpy(client.inputs), torch.from_numpy(client.targets)]
        for number, client in enumerate(population)
    }
    network = PflNet(asked.model, asked.width)
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    seen: list[int] = []

    def dataset(user: str) -> PyTorchTensorDataset:
        seen.append(len(users[user][1]))
        return PyTorchTensorDataset(tensors=users[user], user_id=user, eval_kwargs={"eval": True})

    sizes = {user: len(tensors[1]) for user, tensors in users.items()}
    data = FederatedDataset(dataset, get_user_sampler("minimize_reuse", list(users)), user_id_to_weight=sizes)
    clock, rounds = Clock(), asked.warm_up + asked.rounds
    if asked.evaluate:
        algorithm = EvaluatesPersonal(network) if asked.personal_head else EvaluatesShared()
    else:
        algorithm = FedPer(network) if asked.personal_head else FederatedAveraging()
    algorithm.run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=1 if asked.evaluate else NO_EVALUATION,
            train_cohort_size=asked.cohort,
            val_cohort_size=len(users) if asked.evaluate else 0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=asked.epochs, local_learning_rate=RATE, local_batch_size=asked.batch or None
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
    )
    shared = get_default_framework_module().distributed
    # Of two processes each has seen its own users only; cohorts of a population this even are taken as the mean.
    here = sum(num_steps(size, asked) for size in seen) * shared.world_size / rounds
    if shared.global_rank == 0:
        seconds = np.diff(clock.ends)[asked.warm_up - 1 :].tolist()
        tell("pfl", __version__, seconds, [round(here)] * len(seconds), processes=shared.world_size)


main()
