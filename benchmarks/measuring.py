"""Measurements in turns, and ratios between those of the same turn.

A machine that slows down for a while slows all contenders of a repeat alike, so only times of one repeat are divided.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from benchmarks.workloads import Turn


class CannotRun(Exception):
    """A contender that cannot be measured; says why."""


class Contender(Protocol):
    """Something that can do the work of a workload."""

    def turn(self) -> Turn: ...

    def close(self) -> None: ...


class Name(NamedTuple):
    """Whose measurements they are."""

    workload: str
    contender: str


class Measured(NamedTuple):
    """The turns of everybody, one for each repeat; and why some have none."""

    turns: dict[Name, list[Turn]]
    skipped: dict[Name, str]


class Spread(NamedTuple):
    """Of some values."""

    median: float
    least: float
    most: float


def interleaved(
    contenders: Mapping[Name, Contender],
    repeats: int,
    *,
    refusals: tuple[type[Exception], ...] = (CannotRun,),
    tell: Callable[[str], None] = lambda text: None,
) -> Measured:
    """One turn of each to warm up, then A B C A B C; who refuses in the warm-up is left out."""
    skipped: dict[Name, str] = {}
    for name, contender in contenders.items():
        tell(f"{name.workload}: warming up {name.contender}")
        try:
            contender.turn()
        except refusals as refusal:
            skipped[name] = str(refusal)
    at_work = {name: contender for name, contender in contenders.items() if name not in skipped}
    turns: dict[Name, list[Turn]] = {name: [] for name in at_work}
    for repeat in range(repeats):
        for name, contender in at_work.items():
            tell(f"{name.workload}: {name.contender}, repeat {repeat + 1} of {repeats}")
            turns[name].append(contender.turn())
    return Measured(turns, skipped)


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def times_faster(fast: Sequence[Turn], slow: Sequence[Turn], *, per_step: bool = False) -> Spread:
    """How many times the time of `fast` is that of `slow`, repeat by repeat.

    Per step where the two draw cohorts of their own, which differ a little in size.
    """
    pairs = list(zip(fast, slow, strict=True))
    if per_step:
        return spread([(b.seconds / b.steps) / (a.seconds / a.steps) for a, b in pairs])
    return spread([b.seconds / a.seconds for a, b in pairs])


def median_seconds(turns: Sequence[Turn]) -> float:
    return statistics.median(turn.seconds for turn in turns)
