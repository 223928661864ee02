"""How runs stand, by their folders alone: running, ended in some way, or dead."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from plures.core.errors import RunFolderError
from plures.report import records
from plures.report.finding import find_runs
from plures.report.running import Running, read_running
from plures.report.studies import reading

TAIL_BYTES = 1_000_000
"""So much is read of the end of rounds.jsonl; an evaluated round is in it unless cohorts are huge."""
SOON = 10.0
"""Seconds in which a run that has begun says so in running.json."""


Standing = Literal["running", "ended", "dead"]


@dataclass(frozen=True, kw_only=True)
class RunState:
    """One run as its folder tells of it."""

    folder: Path
    state: str
    """running, finished, interrupted, failed, diverged; dead: its process is gone; damaged: it cannot be read."""
    method: str | None = None
    seed: int | None = None
    rounds_done: int = 0
    rounds: int | None = None
    metric: str | None = None
    """The one it is judged by, such as personal/test/accuracy."""
    value: float | None = None
    changed: float
    """When it was last heard of, in seconds since 1970."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"folder": str(self.folder)}


def list_runs(folder: Path) -> list[RunState]:
    """Every run from a folder on down, the newest first."""
    if not folder.is_dir():
        raise RunFolderError(f"There is no folder {folder}. Give one with runs below it: plures runs FOLDER.")
    found = [state_of(path) for path in find_runs(folder)]
    return sorted(found, key=lambda run: (-run.changed, str(run.folder)))


def state_of(folder: Path) -> RunState:
    """How one run stands; a folder that cannot be read says so, and does not hide the others."""
    changed = last_change(folder)
    try:
        running = read_running(folder)
        standing = standing_of(folder, running)
        return ended(folder, changed) if standing == "ended" else under_way(folder, standing, running, changed)
    except RunFolderError:
        return RunState(folder=folder, state="damaged", changed=changed)


def standing_of(folder: Path, running: Running | None) -> Standing:
    """Whether a run goes on, has a result, or neither."""
    if running is not None and not running.is_dead():
        return "running"
    if (folder / records.RESULT).is_file():
        return "ended"
    return "running" if running is None and time.time() - last_change(folder) < SOON else "dead"


def ended(folder: Path, changed: float) -> RunState:
    with reading(folder / records.RESULT):
        result = records.read_result(folder)
        metric, value = judged(result)
        return RunState(
            folder=folder,
            state=str(result["status"]),
            method=str(result["method"]),
            seed=result["seed"],
            rounds_done=int(result["rounds_done"]),
            rounds=int(result["rounds"]),
            metric=metric,
            value=value,
            changed=changed,
        )


def judged(result: Mapping[str, Any]) -> tuple[str | None, float | None]:
    """The metric a run is judged by: on test data, or on what there is."""
    for split in ("test", "validation", "train"):
        name = f"{result['headline']}/{split}/{result['metric']}"
        if name in result["metrics"]:
            return name, result["metrics"][name]["weighted"]
    return None, None


def under_way(folder: Path, state: str, running: Running | None, changed: float) -> RunState:
    facts: Mapping[str, Any] = {} if running is None else running.facts
    lines = last_rounds(folder)
    metric = facts.get("shown")
    scores = [line["metrics"][metric]["weighted"] for line in lines if metric in line.get("metrics", {})]
    return RunState(
        folder=folder,
        state=state,
        method=facts.get("method"),
        seed=facts.get("seed"),
        rounds_done=lines[-1]["round"] if lines else 0,
        rounds=facts.get("rounds"),
        metric=metric,
        value=scores[-1] if scores else None,
        changed=changed,
    )


def last_rounds(folder: Path) -> list[dict[str, Any]]:
    """The last whole lines of rounds.jsonl."""
    path = folder / records.ROUNDS
    with reading(path):
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")
        whole = lines[1 if size > TAIL_BYTES else 0 : -1]
        return [json.loads(line) for line in whole]


def last_change(folder: Path) -> float:
    times = [(folder / name).stat().st_mtime for name in (records.RESULT, records.ROUNDS) if (folder / name).exists()]
    return max(times, default=0.0)
