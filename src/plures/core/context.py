"""What a round starts from and what it leaves: server, cohort, store, report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from plures.core.client import Result
from plures.core.method import OptimizerState, Visit
from plures.core.program import Program
from plures.core.types import Batch, Facts, Params, Part


class HasTrain(Protocol):
    @property
    def train(self) -> Batch: ...


class Population(Protocol):
    """What the core needs of a federation."""

    @property
    def num_clients(self) -> int: ...

    @property
    def total_examples(self) -> int: ...

    def num_examples(self, client: int) -> int: ...

    def client(self, client: int) -> HasTrain: ...

    def name(self, client: int) -> str: ...


class Store(Protocol):
    """Client state between rounds; changed only for the cohort, once per round."""

    def get(self, client: int) -> Params | None: ...

    def commit(self, round: int, states: Mapping[int, Params]) -> None: ...


class Engine(Protocol):
    """Runs clients; results come in the order of the visits, so that sums agree."""

    @property
    def name(self) -> str: ...

    def run(self, program: Program, visits: Iterable[Visit]) -> Iterator[Result]:
        """The method's own local work."""

    def map(self, work: Callable[[Visit], Any], visits: Iterable[Visit]) -> Iterator[Any]:
        """Any work on clients, for methods with a round of their own."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """What the server holds after a round."""

    round: int
    shared: Params
    optimizer: dict[Part, OptimizerState]


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """What a round cost and how training went."""

    round: int
    cohort: tuple[int, ...]
    losses: dict[str, float] = field(default_factory=dict)
    """Mean training loss of each phase over the cohort, by examples."""
    bytes_down: int = 0
    bytes_up: int = 0
    network_passes: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RoundOutcome:
    """What a round leaves: nothing of it is in force before it is committed."""

    server: Server
    states: dict[int, Params]
    report: RoundReport


@dataclass(frozen=True, kw_only=True)
class RoundContext:
    """What a round starts from."""

    program: Program
    engine: Engine
    population: Population
    store: Store
    server: Server
    clients: tuple[int, ...]
    inclusion: float
    on_result: Callable[[Visit, Result], None] | None = None
    """Sees each result before the server step."""

    @property
    def round(self) -> int:
        return self.server.round + 1

    def visits(self) -> Iterator[Visit]:
        """The cohort's visits, made one at a time as the engine asks for them."""
        sizes = [self.population.num_examples(client) for client in self.clients]
        total = sum(sizes)
        for client, size in zip(self.clients, sizes, strict=True):
            facts = Facts(
                examples=size,
                cohort_examples=total,
                all_examples=self.population.total_examples,
                cohort_clients=len(sizes),
                all_clients=self.population.num_clients,
                inclusion=self.inclusion,
            )
            yield make_visit(self.program, self.population, self.store, self.server, client, self.round, facts)


def make_visit(
    program: Program, population: Population, store: Store, server: Server, client: int, round: int, facts: Facts
) -> Visit:
    """What a client finds when its work begins."""
    initial = program.initial_state(client, server.shared)
    kept = store.get(client) if program.method.stateful else None
    state = initial if kept is None else kept
    return Visit(
        client=client,
        round=round,
        seed=program.seed,
        data=program.binding(client).task.place(population.client(client).train),
        facts=facts,
        received=program.method.download(server.shared, state),
        state=state,
        initial=initial,
        name=population.name(client),
        statistics=program.binding(client).statistics,
    )


def lone_facts(population: Population, client: int) -> Facts:
    """The facts of a client that works by itself: fine-tuning, newcomers."""
    size = population.num_examples(client)
    return Facts(
        examples=size,
        cohort_examples=size,
        all_examples=population.total_examples,
        cohort_clients=1,
        all_clients=population.num_clients,
        inclusion=1.0,
    )
