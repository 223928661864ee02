"""Which engine a run has: by name, by a fixed rule, or by a trial."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.loop import train
from plures.core.program import Program
from plures.core.roles import Engine
from plures.data import Federation
from plures.engines.cached import Cached, cached_steps
from plures.engines.sequential import Sequential
from plures.engines.vectorised import Vectorised
from plures.engines.workers import Workers, can_fork, usable_cores
from plures.participation import Sampler
from plures.stores.memory import MemoryStore

ENGINES: dict[str, Callable[[], Engine]] = {
    "sequential": Sequential,
    "cached": Cached,
    "vectorised": lambda: Vectorised(stepping=cached_steps),
    "workers": Workers,
}
AUTO, TRIAL = "auto", "trial"
LEAST_WORK = 1e7
"""Parameters times examples of a cohort: below it, what is sent to workers and back takes longer than the work."""
TRIED_ROUNDS = 2
"""Of a trial; the last is timed, for the first warms up."""


class Chosen(NamedTuple):
    """An engine, and why it is the one."""

    engine: Engine
    reason: str


def check_engine(asked: str | Engine) -> None:
    known = [*ENGINES, AUTO, TRIAL]
    if isinstance(asked, str) and asked not in known:
        raise InvalidConfig(f"There is no engine '{asked}'. {did_you_mean(asked, known)}")


def find_engine(asked: str | Engine, program: Program, federation: Federation, sampler: Sampler) -> Chosen:
    """The engine of a run; one that is handed over is taken as it is."""
    if not isinstance(asked, str):
        return Chosen(asked, "as given")
    if asked == AUTO:
        return by_rule(program, federation, sampler)
    if asked == TRIAL:
        return by_trial(program, federation, sampler)
    return Chosen(ENGINES[asked](), "as asked")


def by_rule(program: Program, federation: Federation, sampler: Sampler) -> Chosen:
    """Workers where there are cores for them and work enough; they give the same bits as `cached` in one process."""
    cores = usable_cores()
    cohort = sampler.draw(federation.num_clients, 1, program.seed).clients
    examples = sum(federation.num_examples(client) for client in cohort)
    size = sum(value.numel() for value in program.binding(0).task.parameters.values())
    if not can_fork(program):
        return Chosen(Cached(), f"auto: {program.device.type}, one process")
    if cores < 2 or len(cohort) < 2:
        return Chosen(Cached(), f"auto: {cores} cores, {len(cohort)} clients in a round")
    if size * examples < LEAST_WORK:
        return Chosen(Cached(), f"auto: {size:,} parameters and {examples:,} examples a round are little work")
    return Chosen(Workers(), f"auto: {cores} cores, {size:,} parameters, {examples:,} examples a round")


def by_trial(program: Program, federation: Federation, sampler: Sampler) -> Chosen:
    """The fastest of all that can be had, each tried on two rounds that leave nothing behind."""
    seconds = {name: tried(make, program, federation, sampler) for name, make in ENGINES.items()}
    found = {name: value for name, value in seconds.items() if value is not None}
    best = min(found, key=lambda name: found[name])
    told = ", ".join(f"{name} {value:.3g} s" for name, value in sorted(found.items(), key=lambda item: item[1]))
    return Chosen(ENGINES[best](), f"trial of a round: {told}")


def tried(make: Callable[[], Engine], program: Program, federation: Federation, sampler: Sampler) -> float | None:
    """Seconds of a round; None where the engine does not fit this run."""
    began, spent = time.perf_counter(), 0.0
    try:
        for _ in train(program, federation, rounds=TRIED_ROUNDS, sampler=sampler, engine=make(), store=MemoryStore()):
            began, spent = time.perf_counter(), time.perf_counter() - began
    except InvalidConfig:
        return None
    return spent
