"""Rounds in which given visits go wrong, and the same rounds as they would be among those that arrive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch.nn import functional as F

from plures.core.client import Result
from plures.core.context import Conduct, RoundContext, RoundOutcome, Server
from plures.core.loop import Committed, train
from plures.core.losses import Tolerance
from plures.core.method import Method
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.round import weighted_round
from plures.core.types import Params
from plures.core.visit import Visit
from plures.core.wire import Wire
from plures.engines.sequential import Sequential
from plures.participation import Cohort, Fault, Faults
from plures.server.hyper_round import HyperRound
from plures.stores.memory import MemoryStore
from tests.helpers.methods import SEED, Given, Population, copy_of, federation, network

BEARING = Tolerance(least_cohort=1, deadline=60.0, largest_norm=1e6)
"""A round goes on as long as one client arrives."""

LOST_AS: dict[Fault, str] = {
    "absent": "absent",
    "gone": "gone",
    "slow": "late",
    "nan": "diverged",
    "wrong_shape": "misfit",
    "wrong_name": "misfit",
    "wrong_dtype": "misfit",
    "huge": "too_large",
    "nothing": "nothing",
    "failing": "failed",
}
"""What a client is lost as that uploads numbers."""


@dataclass(frozen=True, kw_only=True)
class Scripted(Faults):
    """Faults that are given and not drawn, by round and client; whoever is slow is slow for years."""

    hits: Mapping[tuple[int, int], Fault] = field(default_factory=dict)
    delay: float = 1e9

    def fault_of(self, seed: int, round: int, client: int) -> Fault | None:
        return self.hits.get((round, client))


def scripted(hits: Mapping[tuple[int, int], Fault], tolerance: Tolerance = BEARING) -> Conduct:
    return Conduct(tolerance=tolerance, faults=Scripted(hits=hits))


class Noting:
    """An engine that remembers what came of the work, also of those that are lost later."""

    def __init__(self, engine=None) -> None:
        self.engine = Sequential() if engine is None else engine
        self.name = self.engine.name
        self.results: dict[int, Result] = {}
        self.visits: dict[int, Visit] = {}

    def run(self, program, visits):
        for result in self.engine.run(program, self.noted(visits)):
            self.results[result.client] = result
            yield result

    def noted(self, visits):
        for visit in visits:
            self.visits[visit.client] = visit
            yield visit

    def map(self, work, visits):
        return self.engine.map(work, visits)


@dataclass(frozen=True)
class Replaying:
    """An engine that gives what came of clients' work before, or something in its place."""

    results: Mapping[int, Result]
    name: str = "replaying"

    def run(self, program, visits):
        return (self.results[visit.client] for visit in visits)

    def map(self, work, visits):
        return map(work, visits)


@dataclass(frozen=True, kw_only=True)
class Ordered(HyperRound):
    """Turns in a given order: who is lost had a turn of its own, and the others had theirs around it."""

    order: tuple[int, ...] = ()

    def turns(self, context: RoundContext) -> list[tuple[int, ...]]:
        return [(client,) for client in self.order] if self.one_by_one else super().turns(context)


@dataclass(frozen=True, kw_only=True)
class Second:
    """The second round of a run, ready to be played as often as one likes."""

    program: Program
    population: Population
    server: Server
    states: Mapping[int, Params]
    called: tuple[int, ...]
    inclusion: float

    def store(self) -> MemoryStore:
        store = MemoryStore()
        store.commit(1, {client: copy_of(state) for client, state in self.states.items()})
        return store

    def played(self, conduct: Conduct, engine=None, store=None, wanted: int | None = None, on_result=None) -> Committed:
        """With everything that goes wrong in it."""
        (committed,) = train(
            self.program,
            self.population,
            rounds=2,
            sampler=Always(Cohort(self.called, self.inclusion, wanted)),
            engine=Sequential() if engine is None else engine,
            store=self.store() if store is None else store,
            server=self.server,
            conduct=conduct,
            on_result=on_result,
        )
        return committed

    def among(self, clients: Sequence[int], results: Mapping[int, Result]) -> tuple[RoundOutcome, MemoryStore]:
        """As if these had been the cohort, each drawn with the chance to be called and to arrive."""
        own, store = self.program.method.run_round, self.store()
        if isinstance(own, HyperRound):
            own = Ordered(**vars(own), order=tuple(client for client in results if client in clients))
        outcome = (own or weighted_round)(
            RoundContext(
                program=self.program,
                engine=Replaying(results),
                population=self.population,
                store=store,
                server=self.server,
                clients=tuple(clients),
                inclusion=self.inclusion * len(clients) / len(self.called),
                rounds=2,
                conduct=Conduct(tolerance=Tolerance(least_cohort=1)),
                wanted=len(self.called),
            )
        )
        store.commit(2, outcome.states)
        return outcome, store


@dataclass(frozen=True)
class Always:
    """The same cohort in every round."""

    cohort: Cohort

    def draw(self, num_clients: int, round: int, seed: int) -> Cohort:
        return self.cohort


def program_of(method: Method, population: Population, module=None, wire: Wire | None = None) -> Program:
    return Program(
        method,
        OneNetwork(module=network() if module is None else module),
        loss=F.cross_entropy,
        seed=SEED,
        wire=wire,
        example=lambda: population.client(0).train.inputs[:1],
        num_clients=population.num_clients,
    )


def second_round(
    method: Method,
    *,
    called: tuple[int, ...] = (0, 1, 3, 4),
    inclusion: float = 0.8,
    population: Population | None = None,
    module=None,
    wire: Wire | None = None,
) -> Second:
    """After a first round of the same cohort, so that clients and the server's optimiser have a state."""
    population = federation() if population is None else population
    program, store = program_of(method, population, module, wire), MemoryStore()
    (first,) = train(
        program, population, rounds=1, sampler=Given([called], inclusion), engine=Sequential(), store=store
    )
    return Second(
        program=program,
        population=population,
        server=first.server,
        states={client: store.get(client) for client in store.clients()},
        called=called,
        inclusion=inclusion,
    )


def spoiled(result: Result, **changes) -> Result:
    """A result with other values in its upload: `values` and `held`; or with other `buffers`, `known` or `state`."""
    upload = {key: changes.pop(key) for key in ("values", "held") if key in changes}
    return result._replace(upload=result.upload._replace(**upload), **changes)


__all__ = [
    "BEARING",
    "LOST_AS",
    "Always",
    "Noting",
    "Replaying",
    "Scripted",
    "Second",
    "program_of",
    "scripted",
    "second_round",
    "spoiled",
]
