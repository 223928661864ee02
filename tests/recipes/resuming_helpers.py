"""Runs that are cut and go on, beside the same runs left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from plures import make_experiment, run_experiment
from plures.report import records
from tests.recipes.helpers import same_bits, table

TIMES = {"seconds", "phase_seconds", "refresh_seconds", "engine_reason"}
"""What no two runs have alike."""
LONGEST = 120.0


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def recorded(folder: Path) -> dict[str, Any]:
    """Everything that a run has written, but for times."""
    tables = [name for name in records.GROWING if name != records.ROUNDS and (folder / name).is_file()]
    return {
        "result": without_times(records.read_result(folder)),
        "rounds": without_times(records.read_rounds(folder)),
        **{name: [without_times(row) for row in records.read_rows(folder / name)] for name in tables},
        "files": sorted(path.name for path in folder.iterdir()),
    }


def assert_same_run(found: Path, alone: Path) -> None:
    """The same models to the bit, and the same records."""
    for name in (records.SHARED, records.PERSONAL):
        assert same_bits(load_file(found / name), load_file(alone / name)), name
    left, right = recorded(found), recorded(alone)
    for part in right:
        assert json.dumps(left[part]) == json.dumps(right[part]), part


def experiment_of(method: str = "fedavg", **changes: Any):
    """Five rounds with a checkpoint after each."""
    usual: dict[str, Any] = {"rounds": 5, "checkpoint": {"every": 1}, "evaluation": {"every": 2}}
    return make_experiment(table(method, **usual | changes))


def run_in_a_child(
    experiment: Any, folder: Path, *, seconds: float | None, kill_at: tuple[str, int] | None = None
) -> bool:
    """Whether the run ended by itself; else it was killed after so many seconds, or at the n-th call of `os.NAME`."""
    child = os.fork()
    if child == 0:
        try:
            if kill_at is not None:
                kill_at_call(*kill_at)
            run_experiment(experiment, out=folder, resume=True)
            os._exit(0)
        finally:
            os._exit(1)
    status = waited(child, LONGEST if seconds is None else seconds)
    if status is None:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert not (os.WIFEXITED(status) and os.WEXITSTATUS(status)), "the run failed"
    return os.WIFEXITED(status)


def waited(child: int, seconds: float) -> int | None:
    """The status that a process ended with; None: it goes on."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.001)
    return None


def kill_at_call(name: str, number: int) -> None:
    """From now on, this process kills itself in place of the n-th call of a function of `os`."""
    original, left = getattr(os, name), [number]

    def counted(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(os, name, counted)


def killed_at_random(experiment: Any, folder: Path, *, draws: random.Random, longest: float, most: int) -> int:
    """Kill the run at random moments until it has come to its end; how often that was."""
    for kills in range(most):
        if run_in_a_child(experiment, folder, seconds=draws.uniform(0, longest)):
            return kills
    assert run_in_a_child(experiment, folder, seconds=None), "the run was not left alone"
    return most
