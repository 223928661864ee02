"""Directions that are sure: run anew at the scale micro, and an error where one does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plures.papers import PAPERS, find_paper
from plures.papers.planning import Job, first_stage
from plures.papers.recipe import Direction
from plures.papers.store import Shelf, Store


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Whether a direction holds."""

    paper: str
    direction: Direction
    holds: bool
    figure: str


def directions(papers: Sequence[str] = PAPERS) -> list[tuple[str, Direction]]:
    return [(name, direction) for name in papers for direction in find_paper(name).directions]


def direction_jobs(wanted: Sequence[tuple[str, Direction]], store: Store) -> list[Job]:
    """Every cell once, under one seed; those in the store are there."""
    jobs: dict[str, Job] = {}
    for paper, direction in wanted:
        for cell in direction.cells:
            key = cell.key(0)
            if key not in jobs and not store.path(key).is_file():
                jobs[key] = Job(recipe=paper, cell=cell, seed=0, key=key, waits_for=first_stage(cell, 0))
    return list(jobs.values())


def check(wanted: Sequence[tuple[str, Direction]], store: Store) -> list[Checked]:
    shelf = Shelf(store=store, scale="micro")
    found = []
    for paper, direction in wanted:
        holds, figure = direction.holds(shelf)
        found.append(Checked(paper=paper, direction=direction, holds=holds, figure=figure or "not run"))
    return found
