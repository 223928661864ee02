"""What needs no long training: parameters, network passes, and that a round is a gradient step on the joint loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import torch
from torch import nn
from torch.func import functional_call

from plures.core.seeds import global_draws
from plures.data import Federation, digits_federation
from plures.local import sgd
from plures.methods import pflego
from plures.models import cnn_o, cnn_p, mlp
from plures.papers.blocks import Block, Entry, Grid
from plures.papers.pflego.tables import PUBLISHED
from plures.papers.recipe import Found
from plures.participation import Cohort
from plures.recipes import run_experiment
from plures.recipes.experiment import make_experiment
from plures.recipes.plan import EvaluationPlan
from plures.recipes.running import run

NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "MLP of 784, 200 (MNIST, Fashion-MNIST, EMNIST)": (
        lambda: mlp(shape=(1, 28, 28), hidden=(200,), classes=2),
        157_000,
    ),
    "two convolutions (CIFAR-10)": (lambda: cnn_p(classes=2), 1_754_496),
    "four convolutions (Omniglot)": (lambda: cnn_o(classes=2), 111_424),
}
"""With the sizes that the layers in the 2022 paper's Table 3 come to, the head left out; it prints no counts."""
TAUS = (1, 5, 50)
RATE, ROUNDS = 0.3, 20


def show_counts(found: Found) -> list[Block]:
    sizes = {name: [Entry(measured=body_size(make()), published=size)] for name, (make, size) in NETWORKS.items()}
    passes = {
        row: [
            Entry(measured=passes_of(row, tau), published=PUBLISHED["passes"][row] if tau == 50 else None)
            for tau in TAUS
        ]
        for row in PUBLISHED["passes"]
    }
    return [
        Grid(
            title="Parameters that are shared, beside what the layers of the 2022 paper's Table 3 come to",
            corner="network",
            columns=["parameters"],
            rows=sizes,
        ),
        Grid(
            title="Network passes of a client in a round, counted in a run",
            corner="method",
            columns=[f"tau = {tau}" for tau in TAUS],
            rows=passes,
        ),
    ]


def body_size(network: nn.Module) -> int:
    return sum(value.numel() for name, value in network.named_parameters() if not name.startswith("head"))


@cache
def passes_of(row: str, tau: int) -> int:
    """In one round of two clients on the digits that come with the library."""
    steps = {"steps": tau, "batch": "full"}
    options = {"PFLEGO": {"tau": tau}, "FedPer": {"budget": steps}, "FedAvg": {"budget": steps}}[row]
    table = {
        "method": row.lower(),
        "rounds": 1,
        "cohort": 2,
        "engine": "sequential",
        "method_options": options,
        "evaluation": {"splits": ["test"]},
    }
    result = run_experiment(make_experiment(table))
    return int(result.cost["network_passes"] / 2)


def show_exactness(found: Found) -> list[Block]:
    """PFLEGO with tau = 1 and everybody in each round, beside gradient descent on all data in one place."""
    rows = {f"{size} of 5 clients": [Entry(measured=f"{difference(size):.1e}", published="0")] for size in (5, 2)}
    return [
        Grid(
            title=f"Largest difference to gradient descent on the joint loss after {ROUNDS} rounds, float32",
            corner="in a round",
            columns=["difference"],
            rows=rows,
            note="With 2 of 5 clients a round is an unbiased draw of that step, not the step itself: over all ten "
            f"cohorts of two, the mean first step is {bias():.1e} from that of everybody.",
        )
    ]


def seeded_network() -> nn.Module:
    """The same whenever a page is written."""
    with global_draws(0, "exactness"):
        return mlp(hidden=(32,))


@cache
def difference(cohort: int) -> float:
    """Between the shared weights after some rounds and those of plain gradient descent on the joint loss."""
    federation, network = digits_federation(num_clients=5), seeded_network()
    method = pflego(preset="exact", tau=1, start="common", server=sgd(RATE))
    result = run(method, federation, network, rounds=ROUNDS, cohort=cohort, evaluation=EvaluationPlan(every=ROUNDS))
    wanted = descended(federation, network)
    return max(float((value - wanted[name]).abs().max()) for name, value in result.server.shared.items())


@cache
def bias(size: int = 2) -> float:
    """Between the mean first step of the shared weights over all cohorts of a size, and the step of everybody."""
    federation, network = digits_federation(num_clients=5), seeded_network()
    everyone = tuple(range(federation.num_clients))
    whole = first_step(federation, network, everyone)
    steps = [first_step(federation, network, clients) for clients in combinations(everyone, size)]
    means = {name: sum_of([step[name] for step in steps]) / len(steps) for name in whole}
    return max(float((means[name] - value).abs().max()) for name, value in whole.items())


def first_step(federation: Federation, network: nn.Module, clients: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """The shared weights after a round of these clients."""
    method = pflego(preset="exact", tau=1, start="common", server=sgd(RATE))
    cohort = Given(clients=clients, inclusion=len(clients) / federation.num_clients)
    shared = run(method, federation, network, rounds=1, cohort=cohort, evaluation=EvaluationPlan(every=1)).server.shared
    return {name: value.double() for name, value in shared.items()}


@dataclass(frozen=True, kw_only=True)
class Given:
    """A cohort that is not left to chance, with the probability of being drawn that its clients believe in."""

    clients: tuple[int, ...]
    inclusion: float

    def check(self, num_clients: int) -> None: ...

    def draw(self, num_clients: int, round: int, seed: int) -> Cohort:
        return Cohort(self.clients, self.inclusion)


def descended(federation: Federation, network: nn.Module) -> dict[str, torch.Tensor]:
    """Gradient descent on sum_i alpha_i l_i(theta, W_i), every head a parameter of its own, in double precision."""
    start = {name: value.detach().double() for name, value in network.named_parameters()}
    clients = [federation.client(i).train for i in range(federation.num_clients)]
    total = sum(batch.num_examples for batch in clients)
    theta = {name: value for name, value in start.items() if not name.startswith("head")}
    heads = [{name: value for name, value in start.items() if name.startswith("head")} for _ in clients]
    for _ in range(ROUNDS):
        gradients = []
        for batch, head in zip(clients, heads, strict=True):
            at = {name: value.clone().requires_grad_() for name, value in (theta | head).items()}
            logits = functional_call(network, at, (batch.inputs.double(),))
            loss = nn.functional.cross_entropy(logits, batch.targets) * (batch.num_examples / total)
            gradients.append(dict(zip(at, torch.autograd.grad(loss, list(at.values())), strict=True)))
        theta = {name: value - RATE * sum_of([one[name] for one in gradients]) for name, value in theta.items()}
        heads = [
            {name: value - RATE * one[name] for name, value in head.items()}
            for head, one in zip(heads, gradients, strict=True)
        ]
    return theta


def sum_of(values: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(values)).sum(dim=0)
