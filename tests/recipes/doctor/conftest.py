"""Runs to be damaged: copies of one that was left alone and of one that was interrupted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from plures import run_experiment
from plures.report import records
from tests.recipes.doctor.helpers import as_if_killed, interrupted
from tests.recipes.resuming_helpers import experiment_of

Copy = Callable[..., Path]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Nobody changes their folders."""
    root = tmp_path_factory.mktemp("made")

    @cache
    def make(kind: str) -> Path:
        if kind == "cut":
            interrupted(root / kind)
        else:
            run_experiment(experiment_of("fedper"), out=root / kind)
        return root / kind

    return make


@pytest.fixture
def copy(made: Callable[[str], Path], tmp_path: Path) -> Copy:
    """Makes a copy of one of them; `killed`: as if it had had no time to end."""

    def copied(kind: str = "cut", *, killed: bool = False) -> Path:
        folder = Path(shutil.copytree(made(kind), tmp_path / "run"))
        if killed:
            as_if_killed(folder)
        return folder

    return copied


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run, as if its clients kept more than fits into memory."""
    monkeypatch.setattr("plures.recipes.states.MOST_PORTABLE_BYTES", 0)
    run_experiment(experiment_of("fedper"), out=tmp_path / "large")
    return tmp_path / "large"


@pytest.fixture
def just_finished(copy: Copy, made: Callable[[str], Path]) -> Path:
    """A run that was killed when it had finished, before it could remove its checkpoints."""
    folder = copy()
    run_experiment(experiment_of("fedper"), out=folder, resume=True)
    shutil.copytree(made("cut") / records.CHECKPOINTS, folder / records.CHECKPOINTS)
    shutil.copy(made("cut") / records.STATES, folder / records.STATES)
    return folder


@pytest.fixture
def study(made: Callable[[str], Path], tmp_path: Path) -> Path:
    """Two runs, of which one has finished."""
    folder = tmp_path / "study"
    shutil.copytree(made("alone"), folder / "fedper" / "seed-0")
    shutil.copytree(made("cut"), folder / "fedper" / "seed-1")
    runs = [{"label": "fedper", "seed": seed, "folder": f"fedper/seed-{seed}"} for seed in (0, 1)]
    (folder / records.STUDY).write_text(json.dumps({"runs": runs[:1], "planned": runs}), encoding="utf-8")
    return folder
