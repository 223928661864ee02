"""What the tests of the core are written with: a network one can compute by hand, clients, methods, runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.context import lone_facts, make_visit
from plures.core.loop import Committed, start, train
from plures.core.method import Method, Phase
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.seeds import generator
from plures.core.types import PERSONAL, SHARED, Batch
from plures.engines.sequential import Sequential
from plures.local import delta, sgd, steps
from plures.participation import all_clients
from plures.parts import patterns, split
from plures.server import samples
from plures.stores.memory import MemoryStore


class Pair(nn.Module):
    """a * x0 + b * x1: with half the squared error, the gradients are residual * x0 and residual * x1."""

    def __init__(self, a: float = 2.0, b: float = 1.0) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a, dtype=torch.float64))
        self.b = nn.Parameter(torch.tensor(b, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.a * inputs[:, 0] + self.b * inputs[:, 1]


def half_square(output: Tensor, targets: Tensor) -> Tensor:
    return (output - targets).square().mean() / 2


def mean_output(output: Tensor, targets: Tensor) -> Tensor:
    """A loss with constant gradients: for `Pair` they are the means of x0 and x1."""
    return output.mean()


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class Clients:
    """A population of tensors."""

    batches: tuple[Batch, ...]
    names: tuple[str, ...] = ()

    @property
    def num_clients(self) -> int:
        return len(self.batches)

    @property
    def total_examples(self) -> int:
        return sum(batch.num_examples for batch in self.batches)

    def num_examples(self, client: int) -> int:
        return self.batches[client].num_examples

    def client(self, client: int) -> SimpleNamespace:
        return SimpleNamespace(train=self.batches[client])

    def name(self, client: int) -> str:
        return self.names[client] if self.names else f"client-{client}"


def pair_clients(*clients: list[tuple[float, float, float]], names: tuple[str, ...] = ()) -> Clients:
    """Each client is a list of (x0, x1, y)."""
    rows = [torch.tensor(client, dtype=torch.float64) for client in clients]
    return Clients(batches=tuple(Batch(row[:, :2], row[:, 2]) for row in rows), names=names)


def class_clients(
    sizes: tuple[int, ...], *, inputs: int = 5, classes: int | tuple[int, ...] = 3, dtype: torch.dtype = torch.float64
) -> Clients:
    """Random inputs and labels; `classes` may differ by client."""
    counts = (classes,) * len(sizes) if isinstance(classes, int) else classes
    draws = generator(0, "test data")
    batches = [
        Batch(torch.randn(size, inputs, generator=draws, dtype=dtype), torch.randint(count, (size,), generator=draws))
        for size, count in zip(sizes, counts, strict=True)
    ]
    return Clients(batches=tuple(batches))


def network(*, hidden: int = 4, classes: int = 3, dropout: float = 0.0, seed: int = 0) -> nn.Sequential:
    """Five inputs, a body "0", a head "3", always the same values."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(5, hidden), nn.Tanh(), nn.Dropout(dropout), nn.Linear(hidden, classes)]
    return nn.Sequential(*layers).double()


def phase(train: str | tuple[str, ...] = SHARED, **changes: Any) -> Phase:
    """One full-batch step at rate 0.1, unless changed."""
    return replace(Phase(train=train, budget=steps(1), optimizer=sgd(0.1)), **changes)


def method(*local: Phase, personal: tuple[str, ...] = ("b",), **changes: Any) -> Method:
    """Changes of the shared part, weighted by examples, added up at rate 1, unless changed."""
    own = split(patterns(*personal) if personal else ())
    plain = Method(split=own, local=local or (phase(),), upload=delta, weight=samples, server=sgd(1.0))
    return replace(plain, **changes)


def pair_program(*local: Phase, loss: Any = half_square, seed: int = 1, **changes: Any) -> Program:
    """`Pair` with a shared and b personal."""
    return Program(method(*local, **changes), OneNetwork(module=Pair()), loss=loss, seed=seed)


def class_program(of: Method, module: nn.Module | None = None, *, seed: int = 1) -> Program:
    return Program(of, OneNetwork(module=module or network()), loss=F.cross_entropy, seed=seed)


def visit_to(program: Program, population: Clients, client: int = 0, *, store: Any = None, **changes: Any) -> Any:
    """The visit of a client that works by itself in round 1."""
    facts = lone_facts(population, client)
    visit = make_visit(program, population, store or MemoryStore(), start(program), client, 1, facts)
    return replace(visit, **changes)


class Cohort(NamedTuple):
    clients: tuple[int, ...]
    inclusion: float = 1.0


class Given:
    """A sampler that draws what it was given, round after round."""

    def __init__(self, *cohorts: tuple[int, ...]) -> None:
        self.cohorts = cohorts

    def draw(self, num_clients: int, round: int, seed: int) -> Cohort:
        return Cohort(self.cohorts[round - 1])


def rounds_of(program: Program, population: Clients, rounds: int = 1, **changes: Any) -> list[Committed]:
    """Run some rounds; everybody takes part, in a fresh store, unless changed."""
    settings = {"sampler": all_clients(), "engine": Sequential(), "store": MemoryStore()} | changes
    return list(train(program, population, rounds=rounds, **settings))


def same_bits(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    """Same names, types, shapes and values, to the last bit."""
    return left.keys() == right.keys() and all(
        value.dtype == right[name].dtype and torch.equal(value, right[name]) for name, value in left.items()
    )


def copied(params: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in params.items()}


__all__ = [
    "PERSONAL",
    "SHARED",
    "Clients",
    "Given",
    "Pair",
    "class_clients",
    "class_program",
    "copied",
    "half_square",
    "mean_output",
    "method",
    "network",
    "numbers",
    "pair_clients",
    "pair_program",
    "phase",
    "rounds_of",
    "same_bits",
    "visit_to",
]
