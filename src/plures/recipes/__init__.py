"""A full run as a function or as a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from plures.core.errors import InvalidConfig
from plures.evaluate.guard import Fallback
from plures.recipes.build import Built, build, build_conduct, build_wire
from plures.recipes.checkpointing import CheckpointPlan
from plures.recipes.checks import check_weights_matter
from plures.recipes.client_files import load_client
from plures.recipes.costing import PlannedCost, planned_cost
from plures.recipes.deployed import ClientModel
from plures.recipes.experiment import Experiment, load_experiment, make_experiment
from plures.recipes.exporting import Exported, export_client
from plures.recipes.loading import load_named
from plures.recipes.newcomers import Adapted, adapt
from plures.recipes.pipeline import run_pipeline
from plures.recipes.plan import EvaluationPlan, GuardPlan
from plures.recipes.reloading import load_program, load_run
from plures.recipes.results import RunResult
from plures.recipes.resuming import has_finished
from plures.recipes.running import make_program, run
from plures.recipes.searching import Tuning, search, with_search
from plures.recipes.study import Study, resumed_study, run_members
from plures.recipes.track_tables import make_trackers
from plures.recipes.tracking import Tracker
from plures.recipes.trials import SearchWatcher
from plures.recipes.watching import Watcher

__all__ = [
    "Adapted",
    "CheckpointPlan",
    "ClientModel",
    "EvaluationPlan",
    "Experiment",
    "Exported",
    "GuardPlan",
    "PlannedCost",
    "RunResult",
    "SearchWatcher",
    "Study",
    "Tracker",
    "Tuning",
    "Watcher",
    "adapt",
    "export_client",
    "load_client",
    "load_experiment",
    "load_run",
    "make_experiment",
    "planned_cost",
    "resume_study",
    "run",
    "run_experiment",
    "run_study",
    "tune",
]


def run_experiment(
    experiment: Experiment,
    *,
    out: str | Path | None = None,
    title: str | None = None,
    watcher: Watcher | None = None,
    resume: bool = False,
) -> RunResult:
    """Run an experiment file's content; the folder is `out`, else the file's own, else none is written.

    With `resume`, a run that was begun in that folder goes on from its last checkpoint, and one that has finished is
    read.
    """
    if experiment.data.sizes is not None:
        raise InvalidConfig(
            "[data] sizes stands in for data that are not at hand, which is enough for `plures cost`. To run the "
            "experiment, name a source and remove sizes, shape and classes."
        )
    make_trackers(experiment.track)  # what is missing is told before anything is built
    folder = out or experiment.out
    where = None if folder is None else Path(folder)
    if resume and where is not None and has_finished(where, experiment):
        result = load_run(where)
    elif experiment.pipeline is not None:
        result = run_pipeline(experiment, run_built, out=where, title=title, watcher=watcher, resume=resume)
    else:
        result = run_built(build(experiment), experiment, out=where, title=title, watcher=watcher, resume=resume)
    return replace(result, experiment=experiment)


def run_study(
    experiment: Experiment,
    *,
    out: str | Path,
    seeds: int | Sequence[int] = 3,
    beside: Sequence[str] = (),
    usual: bool = False,
    watcher: Watcher | None = None,
    resume: bool = False,
) -> Study:
    """Run an experiment under several seeds, with other methods beside it; `plures compare` reads the folder.

    `seeds` is a number of them, counted from the experiment's own, or the seeds themselves. With `usual`, Local, FedAvg
    and FedAvg with fine-tuning run beside it too, as they do by `plures run`. With `resume`, a study that was begun in
    `out` goes on: runs that have finished are kept, and one that was cut goes on from its last checkpoint.
    """
    make_trackers(experiment.track)
    numbers = range(experiment.seed, experiment.seed + seeds) if isinstance(seeds, int) else seeds
    return run_members(
        experiment,
        run_experiment,
        out=Path(out),
        seeds=list(numbers),
        beside=beside,
        usual=usual,
        watcher=watcher,
        resume=resume,
    )


def resume_study(folder: str | Path, *, watcher: Watcher | None = None) -> Study:
    """Go on with a study that was cut: runs that have finished are kept, and the others go on."""
    return resumed_study(Path(folder), run_experiment, watcher=watcher)


def tune(
    experiment: Experiment,
    space: Mapping[str, Any] | None = None,
    *,
    out: str | Path,
    trials: int | None = None,
    seeds: int | None = None,
    sampler: str | None = None,
    pruner: str | None = None,
    metric: str | None = None,
    refit: int | None = None,
    watcher: SearchWatcher | None = None,
) -> Tuning:
    """Search for the best options of an experiment, judged on validation data alone; needs the package optuna.

    `space` gives a list or a range for keys as --set has them, such as {"method_options.lr": {"low": 0.01, "high": 1.0,
    "log": True}}; without it, and for what else is not given, the experiment's table [tune] counts. In a folder where
    the same search was begun, it goes on. `refit` runs the best again under so many seeds, with validation merged into
    training, and looks at test data.
    """
    given = {"trials": trials, "seeds": seeds, "sampler": sampler, "pruner": pruner, "metric": metric}
    return search(with_search(experiment, space, **given), run_experiment, out=Path(out), refits=refit, watcher=watcher)


def run_built(
    built: Built,
    experiment: Experiment,
    *,
    out: Path | None,
    title: str | None,
    watcher: Watcher | None,
    pretrained: Fallback | None = None,
    resume: bool = False,
    keep_checkpoint: bool = False,
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
        cohort=experiment.cohort if is_plain_cohort(experiment) else built.sampler,
        seed=experiment.seed,
        engine=experiment.engine,
        device=experiment.device,
        loss=None if experiment.loss is None else load_named("loss", experiment.loss),
        evaluation=built.plan,
        newcomers=built.newcomers,
        capacity=experiment.capacity,
        wire=build_wire(experiment),
        out=out,
        title=title,
        configuration=built.configuration,
        watcher=watcher,
        trackers=make_trackers(experiment.track),
        least_rounds=0 if experiment.pipeline is not None else 1,
        notes=notes_of(built, experiment),
        pretrained=pretrained,
        load=load_program,
        conduct=build_conduct(experiment),
        checkpoint=CheckpointPlan(**experiment.checkpoint.model_dump()),
        resume=resume,
        keep_checkpoint=keep_checkpoint,
    )


def is_plain_cohort(experiment: Experiment) -> bool:
    """Whether one number or word says who takes part."""
    over = None if experiment.tolerate is None else experiment.tolerate.over_select
    return experiment.participation is None and over is None


def notes_of(built: Built, experiment: Experiment) -> dict[str, Any]:
    """For the records: what of the weights to start from went where."""
    notes: dict[str, Any] = {}
    if built.matching is not None:
        weights = experiment.model.weights or "stage (a)"
        notes["started_from"] = {"weights": weights, "report": str(built.matching), **asdict(built.matching)}
    return notes
