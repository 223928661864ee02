"""Which cells can run here: those whose data are at hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from plures.data import find_source
from plures.data.sources.finding import at_hand
from plures.papers.planning import Job
from plures.recipes.federations import source_of


def is_at_hand(source: str) -> bool:
    return ":" in source or at_hand(find_source(source)) != "no"


def divided(jobs: Sequence[Job]) -> tuple[list[Job], dict[str, int]]:
    """What can run, and how many runs each data set is missing for."""
    sources = [source_of(job.cell.experiment(job.seed).data)[0] for job in jobs]
    there = {source: is_at_hand(source) for source in set(sources)}
    able = [job for job, source in zip(jobs, sources, strict=True) if there[source]]
    return able, dict(Counter(source for source in sources if not there[source]))
