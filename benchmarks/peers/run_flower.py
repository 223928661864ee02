"""Flower's simulation runtime: a ClientApp and a ServerApp, as its tutorials write them; one CPU for each client.

The personal head of FedPer stays in the state of the client's context.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import flwr
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from task import RATE, arguments, clients, num_steps, tell
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch_net import Net

asked = arguments()
client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Some epochs on the client's examples."""
    network, examples = received(message, context)
    # All examples at once need no loader, which would pick and stack them one by one.
    loader = DataLoader(examples, batch_size=asked.batch, shuffle=True) if asked.batch else [examples.tensors]
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE)
    total = 0.0
    for _ in range(asked.epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(network(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item()
    keep_head(network, context)
    told = MetricRecord({"train_loss": total, "num-examples": len(examples)})
    return Message(content=RecordDict({"arrays": sent(network), "metrics": told}), reply_to=message)


@client_app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Loss and accuracy on the client's examples, all in one batch."""
    network, examples = received(message, context)
    inputs, targets = examples.tensors
    network.eval()
    with torch.no_grad():
        output = network(inputs)
        found = {"accuracy": (output.argmax(dim=1) == targets).float().mean(), "loss": F.cross_entropy(output, targets)}
    keep_head(network, context)
    told = MetricRecord({**{name: value.item() for name, value in found.items()}, "num-examples": len(examples)})
    return Message(content=RecordDict({"metrics": told}), reply_to=message)


def received(message: Message, context: Context) -> tuple[Net, TensorDataset]:
    """The network as it came, with the client's own head where it has one; and the client's examples."""
    network = Net(asked.model, asked.width)
    network.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=False)
    if asked.personal_head and "head" in context.state:
        network.head.load_state_dict(context.state["head"].to_torch_state_dict())
    own = clients(asked.data)[context.node_config["partition-id"]]
    return network, TensorDataset(torch.from_numpy(own.inputs), torch.from_numpy(own.targets))


def keep_head(network: Net, context: Context) -> None:
    if asked.personal_head and not (asked.evaluate and "head" in context.state):
        context.state["head"] = ArrayRecord(network.head.state_dict())


def sent(network: Net) -> ArrayRecord:
    """What travels: everything, or all but the head."""
    travels = {n: v for n, v in network.state_dict().items() if not (asked.personal_head and n.startswith("head."))}
    return ArrayRecord(travels)


class Timed(FedAvg):
    """FedAvg that looks at the clock: a round lasts from its first message to the new model."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seconds: list[float] = []
        self.steps: list[int] = []
        self.began = 0.0

    def configure_train(self, *given: Any) -> Iterable[Message]:
        self.began = time.perf_counter()
        return super().configure_train(*given)

    def configure_evaluate(self, *given: Any) -> Iterable[Message]:
        if asked.evaluate:
            self.began = time.perf_counter()
        return super().configure_evaluate(*given)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[Any, Any]:
        replies = list(replies)
        found = super().aggregate_train(server_round, replies)
        self.note(replies)
        return found

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
        replies = list(replies)
        found = super().aggregate_evaluate(server_round, replies)
        self.note(replies)
        return found

    def note(self, replies: list[Message]) -> None:
        """The end of a stretch that clients took part in."""
        failed = [reply.error.reason for reply in replies if reply.has_error()]
        if failed:
            raise RuntimeError(failed[0])
        if replies:
            self.seconds.append(time.perf_counter() - self.began)
            sizes = [int(reply.content["metrics"]["num-examples"]) for reply in replies]
            self.steps.append(sum(num_steps(size, asked) for size in sizes))


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds; then the line of JSON."""
    everybody = len(clients(asked.data))
    if asked.evaluate:
        strategy = Timed(fraction_train=0.0, fraction_evaluate=1.0, min_evaluate_nodes=everybody)
    else:
        share = asked.cohort / everybody
        strategy = Timed(fraction_train=share, min_train_nodes=asked.cohort, fraction_evaluate=0.0)
    rounds = asked.warm_up + asked.rounds
    strategy.start(grid=grid, initial_arrays=sent(Net(asked.model, asked.width)), num_rounds=rounds)
    first = asked.warm_up
    tell("flower", flwr.__version__, strategy.seconds[first:], strategy.steps[first:])


run_simulation(
    server_app=server_app,
    client_app=client_app,
    num_supernodes=len(clients(asked.data)),
    backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
)
