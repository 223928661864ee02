"""The loop over rounds: draw a cohort, run the round, commit it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from plures.core.calling import comers
from plures.core.client import Result
from plures.core.context import Conduct, RoundContext, RoundReport, Server
from plures.core.interrupts import uninterrupted
from plures.core.program import Program
from plures.core.roles import Engine, Opens, Population, Store
from plures.core.round import weighted_round
from plures.core.visit import Visit


class Drawn(Protocol):
    @property
    def clients(self) -> tuple[int, ...]: ...

    @property
    def inclusion(self) -> float: ...


class Sampler(Protocol):
    """Draws the cohort of a round, from nothing but the seed and the round."""

    def draw(self, num_clients: int, round: int, seed: int) -> Drawn: ...


class Committed(NamedTuple):
    """A round that is in force."""

    server: Server
    report: RoundReport


def train(
    program: Program,
    population: Population,
    *,
    rounds: int,
    sampler: Sampler,
    engine: Engine,
    store: Store,
    server: Server | None = None,
    on_result: Callable[[Visit, Result], None] | None = None,
    conduct: Conduct | None = None,
    on_commit: Callable[[Committed], None] | None = None,
) -> Iterator[Committed]:
    """Yield each round once it is whole; whoever stops asking stops the run at a whole round.

    `on_commit` is told of a round together with the store: no interrupt comes between the two.
    """
    server = start(program) if server is None else server
    with opened(engine, program, population):
        yield from played(
            program, population, rounds, sampler, engine, store, server, on_result, conduct or Conduct(), on_commit
        )


@contextmanager
def opened(engine: Engine, program: Program, population: Population) -> Iterator[None]:
    """What an engine starts for a run is ended with it, however that ends."""
    if not isinstance(engine, Opens):
        yield
        return
    engine.open(program, population)
    try:
        yield
    finally:
        engine.close()


def played(
    program: Program,
    population: Population,
    rounds: int,
    sampler: Sampler,
    engine: Engine,
    store: Store,
    server: Server,
    on_result: Callable[[Visit, Result], None] | None,
    conduct: Conduct,
    on_commit: Callable[[Committed], None] | None,
) -> Iterator[Committed]:
    run_round = program.method.run_round or weighted_round
    while server.round < rounds:
        cohort = sampler.draw(population.num_clients, server.round + 1, program.seed)
        wanted: int | None = getattr(cohort, "wanted", None)
        clients, missing = comers(conduct, population, cohort.clients, wanted, program.seed, server.round + 1)
        try:
            outcome = run_round(
                RoundContext(
                    program=program,
                    engine=engine,
                    population=population,
                    store=store,
                    server=server,
                    clients=clients,
                    inclusion=cohort.inclusion,
                    rounds=rounds,
                    on_result=on_result,
                    conduct=conduct,
                    missing=missing,
                    wanted=wanted,
                )
            )
        except BaseException:
            store.discard()
            raise
        server, committed = outcome.server, Committed(outcome.server, outcome.report)
        with uninterrupted():
            store.commit(server.round, outcome.states)
            if on_commit is not None:
                on_commit(committed)
        yield committed


def start(program: Program) -> Server:
    """The server before round 1."""
    return Server(round=0, shared=program.initial_shared(), optimizer={})
