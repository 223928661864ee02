"""The folder of a search: what it holds, and who may write to it.

FOLDER/
  study.db       every whole trial, as Optuna keeps them
  trials.csv     one row per trial
  tuning.json    what was searched, every trial, the best one, and the refit
  best.toml      the best configuration so far, complete; `plures run` takes it
  trials/0007/   a trial: an ordinary run folder; with several seeds, a study with seed-N below
  refit/         with --refit: a study of the best on training and validation data
"""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plures.core.errors import InvalidConfig, RunFolderError
from plures.recipes.folder import RunFolder, make_empty_folder, written
from plures.recipes.optuna_study import partial_name
from plures.recipes.trials import Trial
from plures.report import records

STUDY_DB = "study.db"
TUNING = "tuning.json"
BEST = "best.toml"
REFIT = "refit"
LOCK = ".lock"
MISSING = "nothing"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """A new folder, or one that a search began in; nobody else searches in it meanwhile.

    The lock is SQLite's: it ends with the process that has it, however that ends.
    """
    if not (folder / STUDY_DB).is_file() and not was_barely_begun(folder):
        make_empty_folder(folder)
    try:
        lock = sqlite3.connect(folder / LOCK, timeout=0, isolation_level=None)
    except sqlite3.Error as error:
        raise RunFolderError(f"Cannot write to {folder}: {error}. Choose another folder with --out.") from error
    try:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            raise RunFolderError(
                f"Another search is under way in {folder}. Wait for its end, or choose another folder with --out."
            ) from error
        yield
    finally:
        lock.close()


def was_barely_begun(folder: Path) -> bool:
    """Whether a search was killed here before its study began."""
    begun = (LOCK, partial_name(folder / STUDY_DB))  # and SQLite's journals of these
    return folder.is_dir() and all(path.name.startswith(begun) for path in folder.iterdir())


def check_same_search(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Trials of another experiment or another space cannot be gone on with."""
    old, new = leaves(before), leaves(now)
    changed = [key for key in {**old, **new} if old.get(key, MISSING) != new.get(key, MISSING)]
    if changed:
        raise InvalidConfig(
            [
                f"{folder} holds a search with {key} = {old.get(key, MISSING)}, which is {new.get(key, MISSING)} now. "
                "Give what it began with, or choose another folder with --out."
                for key in changed
            ]
        )


def leaves(table: Any, above: str = "") -> dict[str, Any]:
    """Every value of nested tables by its dotted key."""
    if not isinstance(table, Mapping) or not table:
        return {above: table}
    return {
        key: value
        for name, inner in table.items()
        for key, value in leaves(inner, f"{above}.{name}" if above else name).items()
    }


def write_trials(folder: Path, trials: Sequence[Trial], keys: Sequence[str]) -> None:
    """A table for other programs; whole at any moment."""
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(["trial", "status", "value", "rounds", "seconds", *keys])
    for trial in trials:
        value = "" if trial.value is None else written(trial.value)
        own = [trial.options.get(key, "") for key in keys]
        rows.writerow([trial.number, trial.status, value, trial.rounds, f"{trial.seconds:.3f}", *own])
    RunFolder.reopened(folder).write_text(records.TRIALS, text.getvalue())
