"""The command writes what it measured; peers that do not answer are left out with their last words."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import run
from benchmarks.bare import ONE_THREAD, TWO_PROCESSES, TWO_THREADS
from benchmarks.measuring import CannotRun, times_faster
from benchmarks.peers import starting
from benchmarks.reporting import row
from benchmarks.workloads import Turn, Workload, of_size

SMALL = of_size("d-pflego-5", clients=5, cohort=2, examples=20, tests=10)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without environments of peers."""
    monkeypatch.setenv("PLURES_BENCH", str(tmp_path / "bench"))
    return tmp_path


def test_the_result_tells_all_contenders_with_their_steps(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two clients with 5 steps each; the two processes of the bare loop have one client each."""
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)  # two threads on a busy machine take minutes
    monkeypatch.setattr(run, "chosen", lambda only: [SMALL])
    monkeypatch.setattr(sys, "argv", ["run", "--repeats", "2", "--engines", "sequential,none", "--out", str(place)])
    assert run.main() == 0
    shown = capsys.readouterr().out
    assert "There is no engine 'none' here: skipped." in shown
    [path] = place.glob("*.json")
    result = json.loads(path.read_text(encoding="utf-8"))
    [workload] = result["workloads"]
    found = {row["contender"]: row["steps"] for row in workload["contenders"]}
    assert list(found) == ["sequential", TWO_THREADS, ONE_THREAD, TWO_PROCESSES]
    assert list(found.values()) == [[10, 10]] * 4
    assert {"command", "commit", "cpu", "cores", "torch", "data", "load"} <= set(result)
    told = path.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    assert max(map(len, told)) <= 80
    assert [line for line in told if line.startswith("   bare, 2 processes")]


@pytest.mark.parametrize("seconds", [0.00044, 0.0055, 0.055, 1.55, 99.94, 155.0])
def test_rows_fit_into_eighty_columns_whatever_was_measured(seconds: float) -> None:
    turns = [Turn(seconds, 10)] * 3
    assert len(row(TWO_PROCESSES, turns, times_faster(turns, [Turn(0.0999, 10), Turn(1.0, 10), Turn(50.0, 10)]))) <= 80


def test_a_peer_without_environment_is_left_out(place: Path) -> None:
    workload = of_size("a", **SMALL.sizes)
    with pytest.raises(CannotRun, match=r"make_env\.sh makes it"):
        starting.PeerRuns(starting.PEERS[0], workload).turn()


def test_a_peer_that_fails_is_left_out_with_its_last_words() -> None:
    script = "import sys; print('no such thing', file=sys.stderr); sys.exit(3)"
    with pytest.raises(CannotRun, match="status 3: no such thing"):
        starting.last_line([sys.executable, "-c", script], dict(os.environ))


def test_the_line_of_a_peer_is_found_among_its_other_words() -> None:
    script = """print("starting"); print('{"peer": "x", "seconds": [2.0], "steps": [4]}'); print("done")"""
    assert starting.last_line([sys.executable, "-c", script], dict(os.environ))["seconds"] == [2.0]


def test_peers_get_the_training_examples_of_all_clients_in_order(place: Path) -> None:
    workload: Workload = SMALL
    population = workload.federation()
    with np.load(starting.data_file(workload)) as arrays:
        inputs, ends = arrays["inputs"], arrays["ends"].tolist()
    assert ends[-1] == len(inputs) == population.total_examples
    second = population.client(1).train.inputs.numpy()
    assert np.allclose(inputs[ends[0] : ends[1]] / 255, second, atol=1e-6)
