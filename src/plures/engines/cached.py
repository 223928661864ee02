"""One client after another in this process, with steps taken in place and frozen layers run once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from plures.core.client import Result, run_client
from plures.core.losses import Lost, attempted
from plures.core.problem import Outcome, Problem, Watch
from plures.core.program import Program
from plures.core.visit import Visit
from plures.engines.fused import fused_steps
from plures.engines.layout import by_channels, turned_back
from plures.engines.portions import in_portions
from plures.engines.prefix import behind_prefix


def cached_steps(problem: Problem, watch: Watch | None = None) -> Outcome:
    """The steps of a phase behind what it does not move, where that pays; convolutions by channels and in portions."""
    turned = by_channels(problem)
    if turned is None:
        return fused_steps(in_portions(behind(problem)), watch)
    return turned_back(problem, fused_steps(in_portions(behind(turned)), watch))


def behind(problem: Problem) -> Problem:
    """The problem whose network is only what comes after the frozen layers; the same where there are none to skip."""
    found = behind_prefix(problem)
    return problem if isinstance(found, str) else found


class Cached:
    """Runs the cohort in this process, in order, with faster steps; what a phase does not move is run once."""

    name = "cached"
    stepping = staticmethod(cached_steps)

    def run(self, program: Program, visits: Iterable[Visit]) -> Iterator[Result | Lost]:
        for visit in visits:
            binding = program.binding(visit.client)
            yield attempted(visit, partial(run_client, program.method, binding, visit, stepping=self.stepping))

    def map(self, work: Callable[[Visit], Any], visits: Iterable[Visit]) -> Iterator[Any]:
        return map(work, visits)
