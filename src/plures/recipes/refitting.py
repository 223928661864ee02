"""The best of a search once more, with validation merged into training, over several seeds.

This is the rule of Pillutla et al. (2022, appendix B.3): choose on validation data, then train on all that is not test
data. Nothing is left to choose a round by, so that the last one counts; test data are looked at there, and only there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plures.core.errors import InvalidConfig, RunFolderError
from plures.recipes.build import configuration_of
from plures.recipes.experiment import Experiment
from plures.recipes.folder import as_json_text
from plures.recipes.results import RunResult
from plures.recipes.watching import Watcher
from plures.report import records
from plures.report.inside import inside


def check_refit(experiment: Experiment, seeds: int) -> None:
    if seeds < 1:
        raise InvalidConfig(f"refit = {seeds}: give the number of seeds, one or more.")
    if experiment.evaluation.guard:
        raise InvalidConfig(
            "A refit has no validation examples left, but evaluation.guard lets clients choose by them. Remove the "
            "guard, or search without --refit."
        )


def as_refit(experiment: Experiment) -> Experiment:
    """Trained on all that is not test data, tested after the last round alone."""
    pretrain = None if experiment.pipeline is None else experiment.pipeline.pretrain
    rounds = max(1, experiment.rounds, 0 if pretrain is None else pretrain.rounds)
    return experiment.model_copy(
        update={
            "data": experiment.data.model_copy(update={"merge_validation": True}),
            "evaluation": experiment.evaluation.model_copy(update={"splits": ["test"], "every": rounds}),
            "out": None,
            "tune": None,
        }
    )


def run_refit(
    best: Experiment, run: Callable[..., RunResult], *, out: Path, seeds: int, watcher: Watcher | None
) -> dict[str, Any]:
    """A study of the best over several seeds, and its scores; runs that have finished before are not repeated."""
    experiment, label = as_refit(best), best.method.rpartition(":")[2]
    make_room(out, label)
    runs: list[dict[str, Any]] = []
    for seed in range(experiment.seed, experiment.seed + seeds):
        one = experiment.model_copy(update={"seed": seed})
        folder = out / label / f"seed-{seed}"
        if not is_done(folder, configuration_of(one)):
            shutil.rmtree(folder, ignore_errors=True)
            run(one, out=folder, title=f"refit {seed}", watcher=watcher)
        runs.append({"label": label, "seed": seed, "folder": f"{label}/seed-{seed}"})
        (out / records.STUDY).write_text(as_json_text({"runs": runs}, indent=2) + "\n", encoding="utf-8")
    return {"folder": str(out)} | scores([records.read_result(out / one["folder"]) for one in runs])


def earlier_refit(out: Path) -> dict[str, Any] | None:
    """What a refit that was run here before comes to; None: no run of one has finished."""
    try:
        runs = json.loads((out / records.STUDY).read_text(encoding="utf-8"))["runs"]
        folders = [inside(out, one["folder"]) for one in runs]
        found = [records.read_result(folder) for folder in folders if is_whole(folder)]
        return {"folder": str(out)} | scores(found) if found else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, RunFolderError):
        return None


def is_refit_of(refit: Mapping[str, Any], best: Experiment) -> bool:
    """Whether an earlier refit ran just this."""
    label = best.method.rpartition(":")[2]
    one = as_refit(best).model_copy(update={"seed": refit["seeds"][0]})
    return is_done(Path(refit["folder"]) / label / f"seed-{one.seed}", configuration_of(one))


def scores(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the runs come to on test data, by seed and on the mean."""
    name = f"{results[0]['headline']}/test/{results[0]['metric']}"
    values = [result["metrics"][name]["weighted"] for result in results]
    return {
        "metric": name,
        "seeds": [result["seed"] for result in results],
        "values": values,
        "mean": sum(values) / len(values),
    }


def make_room(out: Path, label: str) -> None:
    """What an earlier refit found for another method is no longer the best."""
    out.mkdir(exist_ok=True)
    for path in out.iterdir():
        if path.is_dir() and path.name != label:
            shutil.rmtree(path)


def is_done(folder: Path, configuration: str) -> bool:
    """Whether a run of just this configuration has finished here."""
    try:
        same = (folder / records.EXPERIMENT).read_text(encoding="utf-8") == configuration
    except (OSError, ValueError):
        return False
    return same and is_whole(folder)


def is_whole(folder: Path) -> bool:
    try:
        return bool(records.read_result(folder)["status"] == "finished")
    except (OSError, ValueError, KeyError):
        return False
