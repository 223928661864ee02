"""Which cells can run here: those whose data are at hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from plures.data import find_source
from plures.data.sources.finding import at_hand
from plures.papers.planning import Job
from plures.recipes.federations import source_of


@cache
def is_at_hand(source: str) -> bool:
    return ":" in source or at_hand(find_source(source)) != "no"


def divided(jobs: Sequence[Job]) -> tuple[list[Job], dict[str, int]]:
    """What can run, and how many runs each data set is missing for."""
    able: list[Job] = []
    missing: dict[str, int] = {}
    for job in jobs:
        source, _ = source_of(job.cell.experiment(job.seed).data)
        if is_at_hand(source):
            able.append(job)
        else:
            missing[source] = missing.get(source, 0) + 1
    return able, missing
