"""Runs that were cut, and what can happen to their files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from plures import run_experiment
from plures.recipes.doctor import examine, repair
from plures.recipes.doctor_findings import Diagnosis, Finding
from plures.recipes.watching import Silence
from plures.report import records
from plures.stores.versions import key
from tests.recipes.helpers import same_bits
from tests.recipes.resuming_helpers import experiment_of, kill_at_call, recorded

LAST = 4
"""The round that the runs here were cut after, of five; a checkpoint of the one before is kept too."""


class CutAfter(Silence):
    """Ctrl-C after a round has been recorded."""

    def __init__(self, round: int) -> None:
        self.round = round

    def round_done(self, report: Any, metrics: Any) -> None:
        if report.round == self.round:
            raise KeyboardInterrupt


def interrupted(folder: Path, method: str = "fedper", **changes: Any) -> None:
    """By Ctrl-C: it has a result, and the models of the last whole round."""
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment_of(method, **changes), out=folder, watcher=CutAfter(LAST))


def as_if_killed(folder: Path) -> None:
    """What a run leaves that had no time to end."""
    for name in (records.RESULT, records.SHARED, records.PERSONAL):
        (folder / name).unlink()
    gone = {"pid": 2**22 + 1, "host": os.uname().nodename, "process_started": "long ago"}
    started = {"started": "2026-01-01T00:00:00+00:00", "method": "fedper"}
    (folder / records.RUNNING).write_text(json.dumps(gone | started), encoding="utf-8")


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every byte of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def diagnosis(folder: Path) -> Diagnosis:
    (found,) = examine(folder)
    return found


def finding(folder: Path, name: str) -> Finding:
    return next(one for one in diagnosis(folder).findings if one.file == name)


def wrong(folder: Path) -> dict[str, str]:
    """The files that are not fine, with their states."""
    return {one.file: one.state for one in diagnosis(folder).findings if one.state != "fine"}


def records_of(folder: Path) -> dict[str, Any]:
    """All that a run has recorded; what the doctor has left beside it does not count."""
    return {name: told for name, told in recorded(folder).items() if name != "files"}


def assert_ends_as(folder: Path, alone: Path) -> None:
    """The run goes on to the models and records of the one that was left alone."""
    run_experiment(experiment_of("fedper"), out=folder, resume=True)
    for name in (records.SHARED, records.PERSONAL):
        assert same_bits(load_file(folder / name), load_file(alone / name)), name
    assert json.dumps(records_of(folder)) == json.dumps(records_of(alone))


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def spoil_states(folder: Path, clients: list[int], rounds: list[int]) -> None:
    """Bytes of these states are not those that were written any more."""
    with sqlite3.connect(folder / records.STATES) as connection:
        ids = [(key(client, round),) for client in clients for round in rounds]
        connection.executemany("UPDATE states SET checksum = checksum + 1 WHERE id = ?", ids)
    connection.close()


def leave_journal(folder: Path, copy: Path) -> None:
    """As if a process had been killed while SQLite wrote: the file, changed in part, and what it takes that back by."""
    path = folder / records.STATES
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in ("cache_size = 1", "cache_spill = 1"):
        connection.execute(f"PRAGMA {setting}")
    connection.execute("BEGIN IMMEDIATE")
    for number in range(60):
        connection.execute("INSERT INTO states VALUES (?, 0, ?)", (key(900 + number, 1), bytes(4000)))
    copy.mkdir()
    for name in (records.STATES, f"{records.STATES}-journal"):
        shutil.copy(folder / name, copy / name)
    connection.execute("ROLLBACK")
    connection.close()
    for path in copy.iterdir():
        shutil.copy(path, folder / path.name)


def repair_in_a_child(folder: Path, name: str, number: int, **options: Any) -> bool:
    """Whether a repair ended by itself; else it was killed at the n-th call of `os.NAME`."""
    child = os.fork()
    if child == 0:
        try:
            kill_at_call(name, number)
            repair(folder, **options)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the repair failed"
    return not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL)


Damage = Callable[[Path], None]
NEWEST = f"{records.CHECKPOINTS}/{LAST:08d}"
REPAIRED: dict[str, tuple[Damage, dict[str, str]]] = {
    "a line that was cut": (
        lambda folder: append(folder / records.ROUNDS, b'{"round": 5, "coh'),
        {records.ROUNDS: "cut"},
    ),
    "zeros behind the lines": (lambda folder: append(folder / records.ROUNDS, bytes(500)), {records.ROUNDS: "cut"}),
    "a table that was cut": (
        lambda folder: append(folder / records.VISITS, (folder / records.VISITS).read_bytes()[:40]),
        {records.VISITS: "cut"},
    ),
    "a file that was being written": (
        lambda folder: (folder / f".{records.SHARED}.partial").write_bytes(b"half") and None,
        {f".{records.SHARED}.partial": "left over"},
    ),
    "a checkpoint that was being written": (
        lambda folder: (folder / records.CHECKPOINTS / "00000005.safetensors").write_bytes(b"half") and None,
        {f"{records.CHECKPOINTS}/00000005.safetensors": "left over"},
    ),
    "a manifest": (lambda folder: (folder / f"{NEWEST}.json").write_bytes(b"{}") and None, {NEWEST: "damaged"}),
    "tensors": (lambda folder: flip(folder / f"{NEWEST}.safetensors", -3), {NEWEST: "damaged"}),
    "tensors that are gone": (lambda folder: (folder / f"{NEWEST}.safetensors").unlink(), {NEWEST: "damaged"}),
    "a result": (lambda folder: (folder / records.RESULT).write_bytes(b"{") and None, {records.RESULT: "damaged"}),
    "a shared part": (lambda folder: flip(folder / records.SHARED, -3), {records.SHARED: "damaged"}),
    "personal parts": (lambda folder: flip(folder / records.PERSONAL, 2), {records.PERSONAL: "damaged"}),
    "personal parts that are gone": (lambda folder: (folder / records.PERSONAL).unlink(), {}),
    "one state": (lambda folder: spoil_states(folder, [2], [LAST]), {records.STATES: "damaged"}),
    "all states": (lambda folder: spoil_states(folder, [0, 1, 2, 3], [3, LAST]), {records.STATES: "damaged"}),
    "a store": (
        lambda folder: (folder / records.STATES).write_bytes(b"none" * 999) and None,
        {records.STATES: "damaged"},
    ),
    "a store without a byte": (
        lambda folder: (folder / records.STATES).write_bytes(b"") and None,
        {records.STATES: "damaged"},
    ),
    "a store that is gone": (lambda folder: (folder / records.STATES).unlink(), {records.STATES: "missing"}),
    "a note of a process": (
        lambda folder: (folder / records.RUNNING).write_text("{", encoding="utf-8") and None,
        {records.RUNNING: "damaged"},
    ),
}
"""What may happen to a run that was interrupted, and which files are found not to be fine."""
