"""Runs that end early keep the last whole round: divergence, an interrupt, a disk that is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from safetensors.torch import load_file

from plures import make_experiment, run_experiment
from plures.core.errors import Diverged, PluresError, RunFolderError
from plures.engines.sequential import Sequential
from plures.evaluate import Evaluator
from plures.recipes.watching import Silence
from plures.report import records
from tests.recipes.helpers import ran, same_bits, table

GROWING = {"schedule": "exponential", "start": 0.1, "factor": 1e10}
"""0.1 in round 1, 1e9 in round 2, 1e19 in round 3: too much for single precision."""
EXPLODING = {
    "fedavg": {"lr": GROWING, "budget": {"steps": 1}},
    "fedper": {"lr": GROWING, "budget": {"steps": 1}},
    "fedalt": {"lr": GROWING, "budget": {"steps": 1}},
    "local": {"lr": GROWING, "budget": {"steps": 1}},
}


def parameters(folder):
    return load_file(folder / records.SHARED) | load_file(folder / records.PERSONAL)


def assert_ends_as(folder, shorter):
    """The folder holds the whole rounds of a run that was that short, and no more."""
    lines, expected = records.read_rounds(folder), records.read_rounds(shorter)
    assert [line["round"] for line in lines] == [line["round"] for line in expected]
    assert [line["losses"] for line in lines] == [line["losses"] for line in expected]
    assert same_bits(parameters(folder), parameters(shorter))
    found, wanted = records.read_result(folder), records.read_result(shorter)
    assert found["rounds_done"] == wanted["rounds_done"] == len(lines)
    assert found["fingerprint"] == wanted["fingerprint"]
    costs = ("bytes_down", "bytes_up", "network_passes")
    assert [found["cost"][name] for name in costs] == [wanted["cost"][name] for name in costs]


@pytest.mark.parametrize("method", EXPLODING)
def test_a_run_that_diverges_stops_names_where_and_keeps_the_last_whole_round(method, tmp_path):
    with pytest.raises(Diverged) as found:
        ran(method, tmp_path / "run", rounds=9, method_options=EXPLODING[method])

    whole = found.value.round - 1
    assert 1 <= whole < 8  # in a later round, as this test is about
    assert found.value.client in {"0", "1", "2", "3"}
    assert found.value.phase in {"shared", "personal", "shared+personal"}
    where = f"(client {found.value.client}, round {found.value.round}, phase {found.value.phase})"
    assert where in str(found.value)
    assert "Lower the learning rate" in str(found.value)

    ran(method, tmp_path / "shorter", rounds=whole, method_options=EXPLODING[method])
    assert_ends_as(tmp_path / "run", tmp_path / "shorter")
    assert records.read_result(tmp_path / "run")["status"] == "diverged"


def test_a_run_that_diverges_at_once_keeps_the_start(tmp_path):
    with pytest.raises(Diverged, match="round 1"):
        ran(out=tmp_path / "run", method_options={"lr": 1e38, "budget": {"steps": 2}})

    result = records.read_result(tmp_path / "run")
    assert (result["status"], result["rounds_done"], result["metrics"]) == ("diverged", 0, {})
    assert result["cost"]["bytes_up"] == 0


def test_a_run_without_a_whole_round_has_no_lines(tmp_path):
    with pytest.raises(Diverged):
        ran(out=tmp_path / "run", method_options={"lr": 1e38, "budget": {"steps": 2}})

    assert records.read_rounds(tmp_path / "run") == []


def test_a_client_that_diverges_is_called_by_its_name(tmp_path):
    with pytest.raises(Diverged) as found:
        ran(rounds=5, cohort=1, seed=3, method_options=EXPLODING["fedavg"])

    assert f"client {found.value.client}," in str(found.value)


def test_a_rate_too_large_for_single_precision_is_an_error_of_ours():
    with pytest.raises(PluresError):
        ran(method_options={"lr": 1e39})


def test_a_schedule_that_overflows_is_an_error_of_ours():
    with pytest.raises(PluresError):
        ran(rounds=400, method_options={"lr": {"schedule": "exponential", "start": 0.1, "factor": 10.0}})


class InterruptAfter(Silence):
    """Ctrl-C while the watcher shows a round."""

    def __init__(self, round: int) -> None:
        self.round, self.has_ended = round, False

    def round_done(self, report, metrics) -> None:
        if report.round == self.round:
            raise KeyboardInterrupt

    def ended(self) -> None:
        self.has_ended = True


@pytest.mark.parametrize("method", ["fedavg", "pflego"])
def test_an_interrupt_keeps_the_last_whole_round(method, tmp_path):
    watcher = InterruptAfter(3)

    with pytest.raises(KeyboardInterrupt):
        run_experiment(make_experiment(table(method, rounds=9)), out=tmp_path / "run", watcher=watcher)

    ran(method, tmp_path / "shorter", rounds=3)
    assert_ends_as(tmp_path / "run", tmp_path / "shorter")
    assert records.read_result(tmp_path / "run")["status"] == "interrupted"
    assert watcher.has_ended


def interrupt(monkeypatch, owner, name, at: int) -> None:
    """Ctrl-C in the middle of the n-th call."""
    original, calls = getattr(owner, name), []

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, interrupted)


def test_an_interrupt_within_a_round_keeps_the_one_before(tmp_path, monkeypatch):
    ran("pflego", tmp_path / "shorter", rounds=2, engine="sequential")
    original = Sequential.run

    def interrupted(self, program, visits):
        for number, result in enumerate(original(self, program, visits)):
            yield result
            if program.seed == 0 and number == 1 and result.client == 1 and len(rounds) == 2:
                raise KeyboardInterrupt

    rounds: list[int] = []

    class Counting(Silence):
        def round_done(self, report, metrics) -> None:
            rounds.append(report.round)

    monkeypatch.setattr(Sequential, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(
            make_experiment(table("pflego", rounds=9, engine="sequential")), out=tmp_path / "run", watcher=Counting()
        )

    assert_ends_as(tmp_path / "run", tmp_path / "shorter")


def test_an_interrupt_during_evaluation_leaves_records_that_agree(tmp_path, monkeypatch):
    interrupt(monkeypatch, Evaluator, "evaluate", at=2)

    with pytest.raises(KeyboardInterrupt):
        ran(out=tmp_path / "run", rounds=9, evaluation={"every": 1})

    assert len(records.read_rounds(tmp_path / "run")) == records.read_result(tmp_path / "run")["rounds_done"]


def test_metrics_say_of_which_round_they_are(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_experiment(
            make_experiment(table(rounds=9, evaluation={"every": 2})), out=tmp_path / "run", watcher=InterruptAfter(3)
        )

    result = records.read_result(tmp_path / "run")
    assert (result["rounds_done"], result["metrics_round"]) == (3, 2)


def test_a_failure_nobody_foresaw_keeps_the_last_whole_round_and_is_not_hidden(tmp_path):
    class Breaking(Silence):
        def round_done(self, report, metrics) -> None:
            if report.round == 2:
                raise ZeroDivisionError("of the watcher")

    with pytest.raises(ZeroDivisionError, match="of the watcher"):
        run_experiment(make_experiment(table(rounds=5)), out=tmp_path / "run", watcher=Breaking())

    assert records.read_result(tmp_path / "run")["status"] == "failed"
    assert len(records.read_rounds(tmp_path / "run")) == 2


def fill_disk(monkeypatch, name: str, at: int) -> None:
    """No space is left when a file of that name is opened for the n-th time."""
    original, calls = Path.open, []

    def full(self, *args, **kwargs):
        if name in self.name:
            calls.append(1)
            if len(calls) >= at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)


@pytest.mark.parametrize(
    ("name", "at"),
    [("rounds.jsonl", 1), ("rounds.jsonl", 2), ("clients.csv.gz", 2), ("shared.safetensors", 1), ("result.json", 1)],
)
def test_a_full_disk_is_one_error_that_names_the_file(name, at, tmp_path, monkeypatch):
    fill_disk(monkeypatch, name, at)

    with pytest.raises(RunFolderError) as found:
        ran(out=tmp_path / "run", rounds=3, evaluation={"every": 1})

    assert str(found.value) == f"Cannot write {tmp_path / 'run' / name}: No space left on device."
    assert found.value.__context__ is found.value.__cause__  # the system's own error, and no second one of ours
    assert isinstance(found.value.__cause__, OSError)


def test_after_a_full_disk_no_half_written_file_is_left(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    experiment = make_experiment(table())
    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(RunFolderError, match="No space left on device"):
        run_experiment(experiment, out=tmp_path / "run")

    assert list((tmp_path / "run").iterdir()) == []


def test_files_that_could_be_written_before_the_disk_was_full_are_whole(tmp_path, monkeypatch):
    fill_disk(monkeypatch, "rounds.jsonl", at=4)  # made empty, then a line per round

    with pytest.raises(RunFolderError):
        ran(out=tmp_path / "run", rounds=4)
    monkeypatch.undo()

    assert [line["round"] for line in records.read_rounds(tmp_path / "run")] == [1, 2]
    assert records.read_result(tmp_path / "run")["status"] == "failed"
