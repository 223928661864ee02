"""Real disks that are full, and folders that become read-only: the run goes on once there is room again."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plures import run_experiment
from plures.core.errors import RunFolderError
from plures.data import SOURCES, Source
from plures.recipes.watching import Silence
from plures.report import records
from tests.recipes.helpers import tiny
from tests.recipes.resuming_helpers import assert_same_run, experiment_of


def mounted(*words: str) -> bool:
    return subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0


@pytest.fixture(autouse=True)
def _tiny_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "tiny", Source(name="tiny", about="for tests", files=(), load=tiny))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.name != "posix" or os.geteuid() != 0 or not mounted("-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)):
        pytest.skip("needs a system on which a file system can be mounted")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


class InRound(Silence):
    """Does something after a round."""

    def __init__(self, round: int, action: Callable[[], None]) -> None:
        self.round, self.action = round, action

    def round_done(self, report, metrics) -> None:
        if report.round == self.round:
            self.action()


def fill(place: Path) -> None:
    """Until not a byte is left."""
    with (place / "filler").open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def test_a_full_disk_ends_a_run_with_one_error_and_it_goes_on_once_there_is_room(disk, tmp_path):
    experiment = experiment_of("ditto", rounds=6)
    run_experiment(experiment, out=tmp_path / "alone")

    with pytest.raises(RunFolderError, match=r"(No space left on device|disk is full)"):
        run_experiment(experiment, out=disk / "run", watcher=InRound(3, lambda: fill(disk)))
    (disk / "filler").unlink()
    run_experiment(experiment, out=disk / "run", resume=True)

    assert_same_run(disk / "run", tmp_path / "alone")


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of somebody who may not write where it is not allowed; the superuser may write anywhere."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        was_root = hasattr(os, "seteuid") and os.geteuid() == 0
        if was_root:
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            if was_root:
                os.seteuid(0)


def allow(folder: Path, *, writing: bool) -> None:
    """A folder with all that is in it."""
    for path in [*folder.rglob("*"), folder]:
        path.chmod((0o700 if path.is_dir() else 0o600) if writing else (0o500 if path.is_dir() else 0o400))


def test_a_folder_that_becomes_read_only_ends_a_run_and_it_goes_on_once_it_can_be_written_to(unprivileged):
    experiment = experiment_of("ditto", rounds=6)
    run_experiment(experiment, out=unprivileged / "alone")
    folder = unprivileged / "run"

    with pytest.raises(RunFolderError, match="Permission denied"):
        run_experiment(experiment, out=folder, watcher=InRound(3, lambda: allow(folder, writing=False)))
    allow(folder, writing=True)
    run_experiment(experiment, out=folder, resume=True)

    assert_same_run(folder, unprivileged / "alone")


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_trained(unprivileged):
    closed, seen = unprivileged / "closed", list[int]()
    closed.mkdir()
    allow(closed, writing=False)

    with pytest.raises(RunFolderError, match="Permission denied"):
        run_experiment(experiment_of("ditto"), out=closed / "run", watcher=InRound(1, lambda: seen.append(1)))

    assert not seen
    assert list(closed.iterdir()) == []


def test_whole_rounds_of_a_run_on_a_full_disk_can_be_read(disk):
    with pytest.raises(RunFolderError):
        run_experiment(experiment_of("ditto", rounds=6), out=disk / "run", watcher=InRound(3, lambda: fill(disk)))

    assert [line["round"] for line in records.read_rounds(disk / "run")] == [1, 2, 3]
    assert len(list(records.read_rows(disk / "run" / records.VISITS))) == 3 * 4
