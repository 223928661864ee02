"""A tiny federation in float64, and a whole run of a method on it in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.client import Result, arrival, run_phases
from plures.core.context import RoundReport, Server, lone_facts, make_visit
from plures.core.loop import start, train
from plures.core.method import Method
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.seeds import generator, global_draws
from plures.core.types import Batch, Params
from plures.core.visit import Visit
from plures.core.wire import Wire
from plures.engines.sequential import Sequential
from plures.participation import all_clients
from plures.participation.cohorts import Cohort
from plures.stores.memory import MemoryStore

SEED = 11
"""By it, a cohort of `binomial(0.25)` is empty in round 3 and not in rounds 1, 2 and 4."""
SIZES = (3, 5, 7, 9, 4)
"""Examples of each client: unequal, and no multiple of most batch sizes."""
INPUTS, HIDDEN, CLASSES = 4, 3, 3

BODY = ("body.weight", "body.bias")
HEAD = ("head.weight", "head.bias")


class TinyNetwork(nn.Module):
    """tanh(x A^T + a) W^T + b, of 15 values in the body and 12 in the head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(INPUTS, HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(inputs)))


class NormedNetwork(nn.Module):
    """The same with running statistics between body and head: 3 means, 3 variances and one counter."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(INPUTS, HIDDEN, bias=False)  # a bias would have no effect before the norm
        self.norm = nn.BatchNorm1d(HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.body(inputs))))


def network(make: Callable[[], nn.Module] = TinyNetwork) -> nn.Module:
    """A network in float64, always with the same initial values."""
    with global_draws(SEED, "test network"):
        return make().double()


@dataclass(frozen=True)
class Population:
    """What the core needs of a federation, and no more."""

    batches: Sequence[Batch]

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
        return f"client {client}"


def federation(sizes: Sequence[int] = SIZES, classes: int = CLASSES) -> Population:
    """Clients with random examples; labels are random too, so that no head separates a large client."""
    draws = generator(SEED, "test data")
    return Population(
        [
            Batch(
                torch.randn(size, INPUTS, generator=draws, dtype=torch.float64),
                torch.randint(classes, (size,), generator=draws),
            )
            for size in sizes
        ]
    )


@dataclass(frozen=True)
class Given:
    """Given cohorts, one per round; from the first again after the last."""

    cohorts: Sequence[tuple[int, ...]]
    inclusion: float = 1.0

    def draw(self, num_clients: int, round: int, seed: int) -> Cohort:
        return Cohort(self.cohorts[(round - 1) % len(self.cohorts)], self.inclusion)


@dataclass(frozen=True, kw_only=True)
class Played:
    """A run, with the server and every client's state after each round; entry 0 is before round 1."""

    program: Program
    population: Population
    store: MemoryStore
    servers: list[Server] = field(default_factory=list)
    states: list[dict[int, Params]] = field(default_factory=list)
    reports: list[RoundReport] = field(default_factory=list)
    results: list[tuple[Visit, Result]] = field(default_factory=list)

    @property
    def server(self) -> Server:
        return self.servers[-1]

    @property
    def shared(self) -> Params:
        return self.server.shared

    @property
    def final(self) -> dict[int, Params]:
        return self.states[-1]

    @cached_property
    def cohorts(self) -> list[tuple[int, ...]]:
        return [report.cohort for report in self.reports]

    def keep(self, server: Server) -> None:
        self.servers.append(server)
        clients = range(self.population.num_clients)
        kept = {client: self.store.get(client) for client in clients}
        self.states.append({client: kept[client] or self.program.initial_state(client) for client in clients})

    def visit(self, client: int) -> Visit:
        """What a client finds that works by itself after the last round."""
        facts = lone_facts(self.population, client)
        return make_visit(self.program, self.population, self.store, self.server, client, self.server.round, facts)

    def model(self, client: int) -> Params:
        """All parameters of a client: the latest shared part and its own (E2)."""
        return arrival(self.program.binding(client), self.visit(client))

    def adapted(self, client: int) -> Params:
        """The client's model after the method's `adapt` phases (E4)."""
        return run_phases(
            self.program.method.adapt, self.program.binding(client), self.visit(client), self.model(client)
        )[0]

    def output(self, params: Params, inputs: Tensor) -> Tensor:
        return self.program.binding(0).predict(self.program.method.predict, params, inputs)


def play(
    method: Method,
    rounds: int = 3,
    sampler=None,
    *,
    population: Population | None = None,
    module: nn.Module | None = None,
    loss=F.cross_entropy,
    engine=None,
    store: MemoryStore | None = None,
    seed: int = SEED,
    wire: Wire | None = None,
    capacity_of: Callable[[int], float] | None = None,
) -> Played:
    """Run a method on the tiny federation, all clients in every round unless a sampler is given."""
    population = federation() if population is None else population
    program = Program(
        method,
        OneNetwork(module=network() if module is None else module),
        loss=loss,
        seed=seed,
        wire=wire,
        capacity_of=capacity_of,
        example=lambda: population.client(0).train.inputs[:1],
        num_clients=population.num_clients,
    )
    played = Played(program=program, population=population, store=MemoryStore() if store is None else store)
    played.keep(start(program))
    for committed in train(
        program,
        population,
        rounds=rounds,
        sampler=all_clients() if sampler is None else sampler,
        engine=Sequential() if engine is None else engine,
        store=played.store,
        on_result=lambda visit, result: played.results.append((visit, result)),
    ):
        played.keep(committed.server)
        played.reports.append(committed.report)
    return played


def same_bits(left: Params, right: Params) -> bool:
    """Whether two sets of parameters have the same names, types and bits (so that 0.0 is not -0.0)."""
    return left.keys() == right.keys() and all(equal_bits(left[name], right[name]) for name in left)


def equal_bits(left: Tensor, right: Tensor) -> bool:
    as_bytes = [value.detach().contiguous().reshape(-1).view(torch.uint8) for value in (left, right)]
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(*as_bytes)


def assert_same_bits(left: Params, right: Params) -> None:
    assert left.keys() == right.keys()
    different = [name for name in left if not equal_bits(left[name], right[name])]
    assert not different, f"{different} differ"


def assert_near(actual: Params, expected: Params, rel: float = 1e-12) -> None:
    """The distance of each tensor from the expected one is at most `rel` of the latter's norm."""
    assert actual.keys() == expected.keys()
    for name, wanted in expected.items():
        distance = float((actual[name].double() - wanted.double()).norm())
        assert distance <= rel * float(wanted.double().norm()), f"{name} is off by {distance}"


def assert_all_near(actual: dict[int, Params], expected: dict[int, Params], rel: float = 1e-12) -> None:
    assert actual.keys() == expected.keys()
    for client in expected:
        assert_near(actual[client], expected[client], rel)


def part_of(params: Params, names: Sequence[str]) -> Params:
    return {name: params[name] for name in names}


def copy_of(params: Params) -> Params:
    return {name: value.clone() for name, value in params.items()}


def minus(left: Params, right: Params, divided_by: float = 1.0) -> Params:
    """(left - right) / divided_by, for steps that were taken at some rate."""
    return {name: (left[name] - right[name]) / divided_by for name in left}


class Product(nn.Module):
    """The toy of two numbers: F = (u v - 1)^2 / 2 at u = 1, v = 2, with `toy_loss` and `toy_client`.

    dF/du = (u v - 1) v = 2 and dF/dv = (u v - 1) u = 1.
    """

    def __init__(self, u: float = 1.0, v: float = 2.0) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.tensor(u, dtype=torch.float64))
        self.v = nn.Parameter(torch.tensor(v, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.u * self.v * inputs


def toy_loss(output: Tensor, targets: Tensor) -> Tensor:
    return ((output - targets) ** 2).mean() / 2


def toy_client(num_examples: int = 2) -> Batch:
    ones = torch.ones(num_examples, dtype=torch.float64)
    return Batch(ones, ones)


def bowl(a: float, b: float, num_examples: int = 2) -> Batch:
    """F(w) = a / 2 (w - b)^2 for the network u x with u = w: inputs sqrt(a), targets sqrt(a) b."""
    ones = torch.ones(num_examples, dtype=torch.float64)
    return Batch(sqrt(a) * ones, sqrt(a) * b * ones)


def on_bowls(method: Method, rounds: int, *clients: Batch, start: float = 1.0, sampler=None) -> Played:
    """A run on one number w for each bowl, from `start`."""
    module = Product(start, 1.0)
    module.v.requires_grad_(False)  # only u = w is trained
    return play(method, rounds, sampler, population=Population(clients), module=module, loss=toy_loss)
