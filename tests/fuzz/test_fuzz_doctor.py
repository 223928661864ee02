"""Whatever has happened to the files of a run, what the doctor says of it is true."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plures import load_run, run_experiment
from plures.core.errors import RunFolderError
from plures.recipes.doctor import examine, repair
from plures.report import records
from tests.fuzz.folders import KINDS, copy_of, experiment, know_tiny
from tests.fuzz.harness import fuzzed, mutated_bytes, overwritten_bytes, refused
from tests.recipes.doctor.helpers import as_if_killed, snapshot


@pytest.fixture(autouse=True, scope="module")
def _tiny_source():
    know_tiny()


def check_verdict(kind: str, folder: Path) -> None:
    """A run that can be resumed goes on to its end, and one that can be loaded is loaded."""
    (found,) = examine(folder)
    if found.is_loadable:
        assert load_run(folder).server.round in (3, 4)
    with tempfile.TemporaryDirectory() as place:
        copy = Path(shutil.copytree(folder, Path(place) / "run"))
        error = refused("doctor: runs resumed", lambda: run_experiment(experiment(kind), out=copy, resume=True))
    if found.resumable_from is not None:
        assert error is None, f"it was told that the run can be resumed, but: {error}"


@st.composite
def damaged_files(draw: st.DrawFn, files: dict[str, bytes]) -> dict[str, bytes | None]:
    """One to three files with other bytes, or gone; experiment.toml, without which nothing can be tried, is kept."""
    names = [name for name in sorted(files) if name != records.EXPERIMENT]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    changes = {
        name: st.none()
        | mutated_bytes(files[name])
        | (overwritten_bytes(files[name]) if files[name] else st.just(b"x"))
        for name in chosen
    }
    return {name: draw(change) for name, change in changes.items()}


def damage(folder: Path, changed: dict[str, bytes | None]) -> None:
    for name, content in changed.items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)


@given(kind=st.sampled_from(sorted(KINDS)), fate=st.sampled_from(["cut", "killed", "finished"]), change=st.data())
@fuzzed(5)
def test_what_the_doctor_says_is_true_before_and_after_a_repair(kind, fate, change):
    with copy_of(kind, keep=2, finished=fate == "finished") as folder:
        if fate == "killed":
            as_if_killed(folder)
        damage(folder, change.draw(damaged_files(snapshot(folder))))
        before = snapshot(folder)
        if refused("doctor: folders looked at", lambda: examine(folder)) is not None:
            assert not (folder / records.ROUNDS).is_file()  # it is no run any more
            return
        assert snapshot(folder) == before
        check_verdict(kind, folder)
        refused("doctor: folders repaired", lambda: repair(folder))
        check_verdict(kind, folder)
        repair(folder, forget_clients=True)
        assert repair(folder, forget_clients=True) == []
        check_verdict(kind, folder)


def test_a_folder_of_nothing_but_noise_is_no_run(tmp_path):
    (tmp_path / "noise").write_bytes(b"\0" * 100)
    with pytest.raises(RunFolderError, match="is no run"):
        examine(tmp_path)
