"""What the engines are required to reach, and whether they do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bare import ONE_THREAD, TWO_PROCESSES, TWO_THREADS
from benchmarks.measuring import Name, Spread, median_seconds, times_faster
from benchmarks.workloads import Turn

BARE = (TWO_THREADS, ONE_THREAD, TWO_PROCESSES)
FEDPER, PFLEGO, SHORT_PFLEGO = "d-fedper", "d-pflego-50", "d-pflego-5"

Turns = Mapping[Name, Sequence[Turn]]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One requirement and what was found."""

    workload: str
    engine: str
    what: str
    found: Spread
    limit: float
    at_most: bool = False
    aim: float | None = None

    @property
    def reached(self) -> bool:
        return self.found.median <= self.limit if self.at_most else self.found.median >= self.limit

    def as_json(self) -> dict[str, Any]:
        bound = {"at_most" if self.at_most else "at_least": self.limit, "aim": self.aim}
        facts = {"workload": self.workload, "engine": self.engine, "what": self.what}
        return {**facts, "found": self.found._asdict(), **bound, "reached": self.reached}


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """So many times as fast as the bare loop with two threads, or as its best setting."""

    times: float
    aim: float | None = None
    of_best: float | None = None


REQUIRED = {
    "a": Requirement(times=3.0, aim=4.0),
    "b": Requirement(times=2.0, aim=3.0),
    "c": Requirement(times=1.15, of_best=0.85),
    "e": Requirement(times=1.15, of_best=0.85),
}


def judged_engine(turns: Turns, workload: str, engines: Sequence[str]) -> str | None:
    """The default engine where it was measured, otherwise the fastest that was."""
    measured = [engine for engine in engines if Name(workload, engine) in turns]
    if not measured or "auto" in measured:
        return "auto" if measured else None
    return min(measured, key=lambda engine: median_seconds(turns[Name(workload, engine)]))


def best_bare(turns: Turns, workload: str) -> str:
    """The setting of the bare loop with the least median time."""
    measured = [setting for setting in BARE if Name(workload, setting) in turns]
    return min(measured, key=lambda setting: median_seconds(turns[Name(workload, setting)]))


def verdicts(turns: Turns, engines: Sequence[str], peers: Sequence[str]) -> list[Verdict]:
    """Every requirement that the measurements allow to judge."""
    workloads = list(dict.fromkeys(name.workload for name in turns))
    found: list[Verdict] = []
    for workload in workloads:
        engine = judged_engine(turns, workload, engines)
        if engine is not None:
            found += against_bare(turns, workload, engine)
            found += against_peers(turns, workload, engine, peers)
    return found + list(of_pflego(turns, engines))


def against_bare(turns: Turns, workload: str, engine: str) -> Iterator[Verdict]:
    required = REQUIRED.get(workload)
    if required is None or Name(workload, TWO_THREADS) not in turns:
        return
    ours, best = turns[Name(workload, engine)], best_bare(turns, workload)
    found = times_faster(ours, turns[Name(workload, TWO_THREADS)])
    facts = {"workload": workload, "engine": engine}
    yield Verdict(**facts, what=f"times as fast as {TWO_THREADS}", found=found, limit=required.times, aim=required.aim)
    if required.of_best is not None:
        found = times_faster(ours, turns[Name(workload, best)])
        yield Verdict(**facts, what=f"times as fast as the best, {best}", found=found, limit=required.of_best)


def against_peers(turns: Turns, workload: str, engine: str, peers: Sequence[str]) -> Iterator[Verdict]:
    for peer in peers:
        if Name(workload, peer) in turns:
            found = times_faster(turns[Name(workload, engine)], turns[Name(workload, peer)], per_step=True)
            yield Verdict(workload=workload, engine=engine, what=f"times as fast as {peer}", found=found, limit=1.0)


def of_pflego(turns: Turns, engines: Sequence[str]) -> Iterator[Verdict]:
    """Its round against FedPer's on the plain engine, and the price of more local steps."""
    engine, slow = judged_engine(turns, PFLEGO, engines), Name(FEDPER, "sequential")
    if engine is None:
        return
    ours, short = turns[Name(PFLEGO, engine)], Name(SHORT_PFLEGO, engine)
    facts = {"workload": PFLEGO, "engine": engine}
    if slow in turns:
        yield Verdict(
            **facts, what="times as fast as FedPer, sequential", found=times_faster(ours, turns[slow]), limit=20.0
        )
    if short in turns:
        found = times_faster(turns[short], ours)
        yield Verdict(**facts, what="times the time of tau = 5", found=found, limit=1.5, at_most=True)
