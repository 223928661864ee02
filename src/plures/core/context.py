"""What a round starts from and what it leaves: server, cohort, store, report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import torch

from plures.core.client import Result
from plures.core.losses import STRICT, Missing, Tolerance
from plures.core.method import OptimizerState
from plures.core.program import Binding, Program
from plures.core.roles import Engine, Faults, HasStates, Population, Store
from plures.core.seeds import generator
from plures.core.sums import Summing, empty_sum
from plures.core.types import Batch, Facts, Later, Params, Part, is_known
from plures.core.visit import Visit
from plures.core.wire import Message, Parcel, send


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """How rounds are held: what they bear, what goes wrong on purpose, and how uploads are summed."""

    tolerance: Tolerance = STRICT
    faults: Faults | None = None
    new_sum: Callable[[], Summing] = empty_sum
    is_real: bool = False
    """Whether clients are real: then who is late, or not needed any more, shows in the course of a round."""


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
    """Everybody who was called."""
    lost: tuple[Missing, ...] = ()
    """Those of the cohort whose work is not in the sum."""
    losses: dict[str, float] = field(default_factory=dict)
    """Mean training loss of each phase over the cohort, by examples."""
    bytes_down: int = 0
    bytes_up: int = 0
    """As encoded, with names, shapes, masks and indices."""
    values_down: int = 0
    values_up: int = 0
    """Values alone, as papers count them (times 4 bytes)."""
    network_passes: float = 0.0
    used: float | None = None
    """Largest share of its capacity that a client of the cohort used; None: without capacities."""
    phase_seconds: dict[str, float] = field(default_factory=dict, compare=False)
    """Time of each phase and of the refresh, over the cohort."""


@dataclass(frozen=True, kw_only=True)
class RoundOutcome:
    """What a round leaves: nothing of it is in force before it is committed."""

    server: Server
    states: dict[int, Params]
    report: RoundReport


@dataclass(frozen=True, kw_only=True)
class Begin:
    """Makes a client's initial state, if its first visit were now."""

    program: Program
    client: int
    shared: Params

    def __call__(self) -> Params:
        return self.program.initial_state(self.client, self.shared)


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
    rounds: int | None = None
    """Of the whole run."""
    on_result: Callable[[Visit, Result], None] | None = None
    """Sees each result before the server step."""
    conduct: Conduct = Conduct()
    missing: tuple[Missing, ...] = ()
    """Those that were called as well and do not come."""
    wanted: int | None = None
    """How many are to arrive, where more than that were called."""

    @property
    def round(self) -> int:
        return self.server.round + 1

    @property
    def called(self) -> tuple[int, ...]:
        """The whole cohort, in order."""
        return tuple(sorted([*self.clients, *(one.client for one in self.missing)])) if self.missing else self.clients

    def visits(self) -> Iterator[Visit]:
        """The visits of those that come, made one at a time as the engine asks for them."""
        examples = self.examples_wanted()
        for client in self.clients:
            yield self.visit(client, examples)

    @property
    def num_wanted(self) -> int:
        """How many are to arrive: what clients are told of the cohort is of so many."""
        return len(self.called) if self.wanted is None else self.wanted

    def examples_wanted(self) -> int:
        """Of those that are wanted: of all that are called, or such a share of it."""
        called = self.called
        total = sum(self.population.num_examples(client) for client in called)
        return total if self.num_wanted == len(called) else round(total * self.num_wanted / len(called))

    def visit(self, client: int, cohort_examples: int) -> Visit:
        facts = Facts(
            examples=self.population.num_examples(client),
            cohort_examples=cohort_examples,
            all_examples=self.population.total_examples,
            cohort_clients=self.num_wanted,
            all_clients=self.population.num_clients,
            inclusion=self.inclusion,
        )
        visit = make_visit(
            self.program, self.population, self.store, self.server, client, self.round, facts, rounds=self.rounds
        )
        faults = self.conduct.faults
        if faults is not None and faults.kills_worker(self.program.seed, self.round, client):
            return replace(visit, kills_worker=True)
        return visit


def train_data(program: Program, population: Population, client: int) -> Batch:
    """What a client trains on, where its network is."""
    return program.binding(client).task.place(population.client(client).train)


def make_visit(
    program: Program,
    population: Population,
    store: HasStates,
    server: Server,
    client: int,
    round: int,
    facts: Facts,
    *,
    rounds: int | None = None,
) -> Visit:
    """What a client finds when its work begins."""
    begin = Begin(program=program, client=client, shared=server.shared)
    kept = store.get(client) if program.method.stateful else None
    state, binding = begin() if kept is None else kept, program.binding(client)
    known = {name: value for name, value in state.items() if is_known(binding.parts.get(name, ""))}
    parcel = program.method.download(server.shared, known)
    draws = partial(generator, program.seed, "wire down", round, client)
    message, down = send(program.wire, apart(parcel, binding), upward=False, draws=draws)
    return Visit(
        client=client,
        round=round,
        seed=program.seed,
        data=cast(Batch, Later(partial(train_data, program, population, client))),
        facts=facts,
        received=message.parcel.values | message.exact,
        state=state,
        begin=begin,
        capacity=program.capacity(client),
        down=down,
        network=binding.network,
        rounds=rounds,
        name=population.name(client),
        statistics=binding.statistics,
    )


def apart(parcel: Parcel, binding: Binding) -> Message:
    """A download as a message: running statistics are never rounded; what it says not how much it holds of is whole."""
    values = {name: value for name, value in parcel.values.items() if name not in binding.statistics}
    exact = {name: value for name, value in parcel.values.items() if name in binding.statistics}
    held = parcel.held
    if held is not None:
        whole = {name: torch.ones_like(value, dtype=torch.bool) for name, value in values.items() if name not in held}
        held = {name: (held | whole)[name] for name in values}
    return Message(Parcel(values, held), exact)


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
