"""Which runs a reproduction still needs, and how long they will take."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plures.data import Federation
from plures.papers.cells import Cell, key_of
from plures.papers.outcomes import Outcome
from plures.papers.paces import machine, rate_of, rates_here, work
from plures.papers.recipe import Paper, Recipe, Scale
from plures.papers.store import Store
from plures.recipes.build import build_sampler
from plures.recipes.costing import planned_cost
from plures.recipes.experiment import Experiment
from plures.recipes.federations import build_federation
from plures.recipes.pretraining import pretraining
from plures.report.writing import write_whole

START_SECONDS = 8.0
"""Until a process has loaded torch and its data."""
LOOKED_AT = 20
"""Rounds whose cohorts are drawn for their mean size."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run that is missing."""

    recipe: str
    """The first that asks for it."""
    cell: Cell
    seed: int
    key: str
    waits_for: str | None = None
    """Jobs with the same first stage: the first of them trains it for the others."""
    seconds: float = 0.0

    @property
    def title(self) -> str:
        """With the data set, where its row and column do not name it: several may be dealt alike."""
        told = [part for part in (self.cell.row, self.cell.column) if part]
        source = self.cell.source
        return f"{self.recipe}: {', '.join(told if source in ' '.join(told).lower() else [*told, source])}"


def missing_jobs(
    recipes: Sequence[Recipe], scale: Scale, seeds: int, store: Store, only: str = ""
) -> tuple[list[Job], int]:
    """What has not been run, each configuration once; and how many runs are there already."""
    jobs: dict[str, Job] = {}
    there: set[str] = set()
    for seed in range(seeds):
        for recipe in recipes:
            for cell in recipe.cells(scale):
                if not has(cell, only) or (cell.most_seeds is not None and seed >= cell.most_seeds):
                    continue
                key = cell.key(seed)
                if store.path(key).is_file():
                    there.add(key)
                elif key not in jobs:
                    jobs[key] = Job(
                        recipe=recipe.name, cell=cell, seed=seed, key=key, waits_for=first_stage(cell, seed)
                    )
    return list(jobs.values()), len(there)


def has(cell: Cell, only: str) -> bool:
    """Whether a text is in its row, its column or the name of its data; the empty text is in all."""
    return only.lower() in f"{cell.row} {cell.column} {cell.source}".lower()


def first_stage(cell: Cell, seed: int) -> str | None:
    """Names stage (a) of a pipeline; None without one."""
    experiment = cell.experiment(seed)
    pipeline = experiment.pipeline
    if pipeline is None or pipeline.pretrain is None:
        return None
    return key_of(pretraining(experiment, pipeline.pretrain))


def chosen_recipes(paper: Paper, items: Iterable[str]) -> list[Recipe]:
    wanted = set(items)
    return [recipe for recipe in paper.recipes if not wanted or recipe.name in wanted]


def estimated(
    jobs: Sequence[Job], measured: Sequence[Outcome], notes: Path, told: Callable[[int], None] = lambda done: None
) -> list[Job]:
    """With the seconds that each will take on one core: operations are counted without training, and noted."""
    known = read_notes(notes)
    rates, stages, found, federations = rates_here(measured, machine()), set[str](), [], Federations()
    for done, job in enumerate(jobs):
        experiment = job.cell.experiment(job.seed)
        flops = noted(known, job.key, experiment, federations)
        if job.waits_for is not None and job.waits_for not in stages and experiment.pipeline is not None:
            assert experiment.pipeline.pretrain is not None
            stages.add(job.waits_for)
            flops += noted(known, job.waits_for, pretraining(experiment, experiment.pipeline.pretrain), federations)
        found.append(replace(job, seconds=START_SECONDS + flops / rate_of(rates, experiment)))
        told(done + 1)
    notes.parent.mkdir(parents=True, exist_ok=True)
    write_whole(notes, json.dumps(read_notes(notes) | known, indent=0) + "\n")  # others may have noted some meanwhile
    return found


def read_notes(notes: Path) -> dict[str, float]:
    """Operations by key."""
    known: dict[str, float] = json.loads(notes.read_text("utf-8")) if notes.is_file() else {}
    return known


def noted(known: dict[str, float], key: str, experiment: Experiment, federations: Federations) -> float:
    """Operations of all clients in all rounds; evaluation is in the rate."""
    if key not in known:
        known[key] = operations(experiment, federations.of(experiment))
    return known[key]


def operations(experiment: Experiment, whole: Federation) -> float:
    """One visit of a client of middle size stands for all: enough for minutes and hours."""
    sizes = sorted((whole.num_examples(client), client) for client in range(whole.num_clients))
    middle = whole.only([sizes[len(sizes) // 2][1]])
    sampler = build_sampler(experiment)
    cohorts = [
        len(sampler.draw(whole.num_clients, round, experiment.seed).clients) for round in range(1, LOOKED_AT + 1)
    ]
    one = experiment.model_copy(
        update={
            "rounds": 1,
            "cohort": "all",
            "participation": None,
            "capacity": None,
            "data": experiment.data.model_copy(update={"newcomers": None}),
        }
    )
    return work(planned_cost(one, middle).total) * experiment.rounds * sum(cohorts) / len(cohorts)


class Federations:
    """The last federation that was built: loading data takes longer than counting."""

    def __init__(self) -> None:
        self.name = ""
        self.last: Federation | None = None

    def of(self, experiment: Experiment) -> Federation:
        name = json.dumps(experiment.data.model_dump(), sort_keys=True)
        if self.last is None or name != self.name:
            self.name, self.last = name, build_federation(experiment)
        return self.last
