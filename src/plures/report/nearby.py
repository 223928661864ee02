"""Runs that lie near those named: in the same folder, or of the same study."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from plures.core.errors import RunFolderError
from plures.report import records
from plures.report.conditions import Conditions, conditions_of
from plures.report.inside import inside
from plures.report.studies import RecordedRun, is_finished, read_run, reading


def runs_near(paths: Sequence[Path], given: Sequence[RecordedRun], alike: Conditions) -> list[RecordedRun]:
    """Finished runs under the same conditions and seeds; those that cannot be read are passed by."""
    taken, seeds = {run.folder.resolve() for run in given}, {run.seed for run in given}
    folders = dict.fromkeys(folder for path in paths for folder in near(path.resolve()))
    found = [readable(folder) for folder in folders if folder not in taken]
    return [run for run in found if run is not None and run.seed in seeds and has_conditions(run, alike)]


def near(path: Path) -> Iterator[Path]:
    """Runs beside a run or study, those of studies beside it, and those of the study that a run is of."""
    for place in (path.parent, path.parent.parent):
        runs = runs_of_study(place)
        if path in runs:
            yield from runs
    try:
        beside = sorted(path.parent.iterdir())
    except OSError:
        return
    for folder in beside:
        if (folder / records.RESULT).is_file():
            yield folder.resolve()
        yield from runs_of_study(folder)


def readable(folder: Path) -> RecordedRun | None:
    try:
        run = read_run(shown(folder))
        return run if is_finished(run) else None
    except (RunFolderError, AttributeError):
        return None


def has_conditions(run: RecordedRun, alike: Conditions) -> bool:
    try:
        return conditions_of(run) == alike
    except (RunFolderError, ValueError, TypeError, AttributeError):
        return False


def runs_of_study(folder: Path) -> list[Path]:
    """Nothing of a folder that is no study, or whose list is damaged."""
    if not (folder / records.STUDY).is_file():
        return []
    try:
        return [inside(folder, entry["folder"]).resolve() for entry in study_of(folder)["runs"]]
    except (RunFolderError, KeyError, TypeError):
        return []


def study_of(folder: Path) -> dict[str, Any]:
    with reading(folder / records.STUDY):
        return dict(json.loads((folder / records.STUDY).read_text(encoding="utf-8")))


def left_out_of(paths: Sequence[Path]) -> dict[str, str]:
    """Methods that could not run beside an experiment, with the reasons that its study tells."""
    studies = [study_of(path) for path in paths if (path / records.STUDY).is_file()]
    return {str(method): str(why) for study in studies for method, why in (study.get("left_out") or {}).items()}


def free_folder(path: Path) -> Path:
    """Beside a run or study, of a name that is not taken."""
    wanted = path.resolve().with_name(f"{path.resolve().name}-beside")
    names = chain([wanted], (wanted.with_name(f"{wanted.name}-{number}") for number in count(2)))
    return shown(next(name for name in names if not name.exists()))


def shown(path: Path) -> Path:
    """From where the reader is, if that is shorter."""
    return Path(min(str(path), os.path.relpath(path), key=len))
