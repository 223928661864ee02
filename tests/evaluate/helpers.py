"""A federation of four clients, small enough to evaluate by hand, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from plures.core.context import Server
from plures.core.method import Method
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.types import Batch, Params
from plures.data import Federation, federate
from plures.evaluate import ClientScore, Evaluator
from plures.stores.memory import MemoryStore

INPUTS, HIDDEN, CLASSES = 4, 3, 3
SIZES = ((6, 3, 4), (5, 0, 2), (8, 2, 1), (7, 4, 5))
"""Train, validation and test examples of each client; client 1 has nothing to validate on."""
SEED = 3


class Network(nn.Module):
    """tanh of a linear body, then a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(INPUTS, HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(inputs)))


class NormedNetwork(nn.Module):
    """The same with batch norm after the body."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Linear(INPUTS, HIDDEN)
        self.drop = nn.Dropout(dropout)
        self.norm = nn.BatchNorm1d(HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.drop(self.body(inputs)))))


def made(module: type[nn.Module] = Network, **options: float) -> nn.Module:
    """A network in float64, always with the same first values."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return module(**options).double()


def federation(sizes: Sequence[tuple[int, int, int]] = SIZES) -> Federation:
    draws = torch.Generator().manual_seed(SEED)
    return federate([tuple(drawn(size, draws) for size in splits) for splits in sizes], num_classes=CLASSES)


def drawn(size: int, draws: torch.Generator) -> Batch:
    inputs = torch.randn(size, INPUTS, generator=draws, dtype=torch.float64)
    return Batch(inputs, torch.randint(CLASSES, (size,), generator=draws))


def evaluator_of(
    method: Method, clients: Federation, module: nn.Module | None = None
) -> tuple[Evaluator, Server, MemoryStore]:
    """An evaluator, a server before round 1 and an empty store."""
    program = Program(method, OneNetwork(module=made() if module is None else module), loss=F.cross_entropy, seed=SEED)
    store = MemoryStore()
    server = Server(round=1, shared=program.initial_shared(), optimizer={})
    return Evaluator(program, clients, store), server, store


def by_hand(client: int, params: Params, batch: Batch, module: nn.Module | None = None) -> ClientScore:
    """Accuracy and loss from a plain forward pass of the network in its evaluation mode."""
    output = functional_call((made() if module is None else module).eval(), params, (batch.inputs,))
    right = sum(int(row.argmax()) == int(label) for row, label in zip(output, batch.targets, strict=True))
    loss = float(F.cross_entropy(output, batch.targets))
    return ClientScore(
        client=client, examples=len(batch.targets), values={"accuracy": right / len(batch.targets), "loss": loss}
    )


def copied(params: Params) -> Params:
    return {name: value.clone() for name, value in params.items()}


def same_bits(left: Params, right: Params) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
