"""One client after another: the plain engine that every faster one is tested against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from plures.core.client import Result, run_client
from plures.core.losses import Lost, attempted
from plures.core.program import Program
from plures.core.visit import Visit


class Sequential:
    """Runs the cohort in this process, in order."""

    name = "sequential"

    def run(self, program: Program, visits: Iterable[Visit]) -> Iterator[Result | Lost]:
        for visit in visits:
            yield attempted(visit, partial(run_client, program.method, program.binding(visit.client), visit))

    def map(self, work: Callable[[Visit], Any], visits: Iterable[Visit]) -> Iterator[Any]:
        return map(work, visits)
