"""A full run as a function or as a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from plures.core.errors import InvalidConfig
from plures.recipes.build import Built, build, build_wire
from plures.recipes.checks import check_weights_matter
from plures.recipes.costing import PlannedCost, planned_cost
from plures.recipes.experiment import Experiment, load_experiment, make_experiment
from plures.recipes.loading import load_named
from plures.recipes.pipeline import run_pipeline
from plures.recipes.plan import EvaluationPlan
from plures.recipes.results import RunResult
from plures.recipes.running import make_program, run
from plures.recipes.watching import Watcher

__all__ = [
    "EvaluationPlan",
    "Experiment",
    "PlannedCost",
    "RunResult",
    "Watcher",
    "load_experiment",
    "make_experiment",
    "planned_cost",
    "run",
    "run_experiment",
]


def run_experiment(
    experiment: Experiment, *, out: str | Path | None = None, title: str | None = None, watcher: Watcher | None = None
) -> RunResult:
    """Run an experiment file's content; the folder is `out`, else the file's own, else none is written."""
    if experiment.data.sizes is not None:
        raise InvalidConfig(
            "[data] sizes stands in for data that are not at hand, which is enough for `plures cost`. To run the "
            "experiment, name a source and remove sizes, shape and classes."
        )
    folder = out or experiment.out
    where = None if folder is None else Path(folder)
    if experiment.pipeline is not None:
        return run_pipeline(experiment, run_built, out=where, title=title, watcher=watcher)
    return run_built(build(experiment), experiment, out=where, title=title, watcher=watcher)


def run_built(
    built: Built, experiment: Experiment, *, out: Path | None, title: str | None, watcher: Watcher | None
) -> RunResult:
    """Run what an experiment named."""
    if built.matching is not None:
        program = make_program(built.method, built.networks, built.federation, seed=experiment.seed)
        check_weights_matter(program, "[model] weights" if experiment.model.weights else "[pipeline] pretrain")
    return run(
        built.method,
        built.federation,
        built.networks,
        rounds=experiment.rounds,
        cohort=experiment.cohort if experiment.participation is None else built.sampler,
        seed=experiment.seed,
        engine=experiment.engine,
        device=experiment.device,
        loss=None if experiment.loss is None else load_named("loss", experiment.loss),
        evaluation=built.plan,
        capacity=experiment.capacity,
        wire=build_wire(experiment),
        out=out,
        title=title,
        configuration=built.configuration,
        watcher=watcher,
        least_rounds=0 if experiment.pipeline is not None else 1,
        notes=notes_of(built, experiment),
    )


def notes_of(built: Built, experiment: Experiment) -> dict[str, Any]:
    """For the records: what of the weights to start from went where, and how many clients were held out."""
    notes: dict[str, Any] = {}
    if built.matching is not None:
        weights = experiment.model.weights or "stage (a)"
        notes["started_from"] = {"weights": weights, "report": str(built.matching), **asdict(built.matching)}
    if built.newcomers is not None:
        notes["newcomers"] = [built.newcomers.name(client) for client in range(built.newcomers.num_clients)]
    return notes
