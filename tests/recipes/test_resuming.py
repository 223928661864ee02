"""A run that was cut goes on from its last checkpoint, to the same models and records as one that was left alone."""

from __future__ import annotations

import random
import shutil

import pytest

from plures import run_experiment
from plures.core.errors import InvalidConfig, PluresError, RunFolderError
from plures.evaluate import Evaluator
from plures.methods import METHODS
from plures.recipes.checkpoints import checkpoints_in
from plures.recipes.engines import ENGINES
from plures.recipes.folder import RunFolder
from plures.recipes.watching import Silence
from plures.report import records
from tests.recipes.conftest import SHORTER
from tests.recipes.resuming_helpers import (
    assert_same_run,
    experiment_of,
    killed_at_random,
    run_in_a_child,
)


class CutAfter(Silence):
    """Ctrl-C after a round has been recorded."""

    def __init__(self, round: int) -> None:
        self.round, self.went_on_after = round, None

    def round_done(self, report, metrics) -> None:
        if report.round == self.round:
            raise KeyboardInterrupt

    def resumed(self, rounds_done: int) -> None:
        self.went_on_after = rounds_done


def cut(experiment, folder, round: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=folder, watcher=CutAfter(round))


FEW = ["fedavg", "pflego", "ditto", "fedspa", "pfedgate", "scaffold", "pfedhn"]
"""Methods with every kind of state: none, heads, twins, masks, gates, controls, memories of the server's optimiser."""


@pytest.mark.parametrize(
    "method", [method if method in FEW else pytest.param(method, marks=pytest.mark.slow) for method in sorted(METHODS)]
)
def test_every_method_goes_on_as_if_it_had_not_been_cut(method, tmp_path):
    experiment = experiment_of(method, cohort=3, **SHORTER.get(method, {}))
    run_experiment(experiment, out=tmp_path / "alone")

    cut(experiment, tmp_path / "cut", 2)
    watcher = CutAfter(4)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=tmp_path / "cut", watcher=watcher, resume=True)
    run_experiment(experiment, out=tmp_path / "cut", resume=True)

    assert watcher.went_on_after == 2
    assert_same_run(tmp_path / "cut", tmp_path / "alone")


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_every_engine_goes_on_to_the_same_bits(engine, tmp_path):
    experiment = experiment_of("fedalt", cohort=3, engine=engine)
    run_experiment(experiment, out=tmp_path / "alone")

    cut(experiment, tmp_path / "cut", 3)
    run_experiment(experiment, out=tmp_path / "cut", resume=True)

    assert_same_run(tmp_path / "cut", tmp_path / "alone")


@pytest.mark.parametrize(
    "changes",
    [
        {"server": {"optimizer": "fedadam", "lr": 0.1}},
        {"wire": {"upload": "int8", "download": "bfloat16"}},
        {"evaluation": {"every": 2, "post_local": True, "models": "all"}},
        {"data": {"newcomers": 1}},
    ],
    ids=["optimiser", "wire", "all models", "newcomers"],
)
def test_what_else_a_run_remembers_is_there_when_it_goes_on(changes, tmp_path):
    experiment = experiment_of("fedavg", cohort=2, **changes)
    run_experiment(experiment, out=tmp_path / "alone")

    cut(experiment, tmp_path / "cut", 3)
    run_experiment(experiment, out=tmp_path / "cut", resume=True)

    assert_same_run(tmp_path / "cut", tmp_path / "alone")


@pytest.mark.parametrize("post_local", [False, True])
def test_a_round_that_was_cut_during_its_evaluation_is_evaluated_when_the_run_goes_on(
    tmp_path, monkeypatch, post_local
):
    experiment = experiment_of("fedper", evaluation={"every": 1, "post_local": post_local})
    run_experiment(experiment, out=tmp_path / "alone")

    with monkeypatch.context() as patched:
        patched.setattr(Evaluator, "evaluate", interrupted_at(Evaluator.evaluate, 3))
        with pytest.raises(KeyboardInterrupt):
            run_experiment(experiment, out=tmp_path / "cut")
    assert records.read_result(tmp_path / "cut")["rounds_done"] == 3
    run_experiment(experiment, out=tmp_path / "cut", resume=True)

    assert_same_run(tmp_path / "cut", tmp_path / "alone")


@pytest.mark.parametrize("at", range(1, 12))
def test_an_interrupt_between_two_records_of_a_round_does_no_harm(tmp_path, monkeypatch, at):
    experiment = experiment_of("fedper", evaluation={"every": 1})
    run_experiment(experiment, out=tmp_path / "alone")

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "_append", interrupted_at(RunFolder._append, at))
        with pytest.raises(KeyboardInterrupt):
            run_experiment(experiment, out=tmp_path / "cut")
    run_experiment(experiment, out=tmp_path / "cut", resume=True)

    assert_same_run(tmp_path / "cut", tmp_path / "alone")


def interrupted_at(original, number):
    """Ctrl-C in place of the n-th call."""
    calls: list[int] = []

    def call(*args, **kwargs):
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    return call


# Kills


@pytest.mark.parametrize("method", ["fedper", pytest.param("fedavg", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["fsync", "replace", "truncate", "unlink"])
def test_a_process_that_is_killed_at_any_step_on_the_disk_leaves_a_run_that_goes_on(method, name, tmp_path):
    experiment = experiment_of(method, rounds=2)
    run_experiment(experiment, out=tmp_path / "alone")

    number, ended = 0, False
    while not ended:
        number += 1
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        ended = run_in_a_child(experiment, tmp_path / "cut", seconds=None, kill_at=(name, number))
        run_experiment(experiment, out=tmp_path / "cut", resume=True)
        assert_same_run(tmp_path / "cut", tmp_path / "alone")
    assert number > 1 or name == "truncate"  # it was killed at least once


@pytest.mark.parametrize("method", ["fedper", "pflego"])
def test_a_run_that_is_killed_at_random_moments_ends_as_one_left_alone(method, tmp_path):
    experiment = experiment_of(method, rounds=20, cohort=3)
    run_experiment(experiment, out=tmp_path / "alone")

    kills = killed_at_random(experiment, tmp_path / "cut", draws=random.Random(method), longest=0.4, most=12)

    assert kills >= 1
    assert_same_run(tmp_path / "cut", tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_survives_random_kills(method, tmp_path):
    experiment = experiment_of(method, rounds=20, cohort=3, **SHORTER.get(method, {}))
    run_experiment(experiment, out=tmp_path / "alone")

    killed_at_random(experiment, tmp_path / "cut", draws=random.Random(method), longest=1.0, most=15)

    assert_same_run(tmp_path / "cut", tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedalt", "fedspa"])
@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_every_engine_survives_random_kills(engine, method, tmp_path):
    experiment = experiment_of(method, rounds=20, cohort=3, engine=engine)
    run_experiment(experiment, out=tmp_path / "alone")

    killed_at_random(experiment, tmp_path / "cut", draws=random.Random(engine + method), longest=1.0, most=15)

    assert_same_run(tmp_path / "cut", tmp_path / "alone")


# Damage and other runs


def test_where_the_last_checkpoint_is_damaged_the_run_goes_on_from_the_one_before(tmp_path):
    experiment = experiment_of("ditto")
    run_experiment(experiment, out=tmp_path / "alone")
    cut(experiment, tmp_path / "cut", 4)
    newest = checkpoints_in(tmp_path / "cut")[0]
    newest.with_suffix(".safetensors").write_bytes(b"damaged")

    with pytest.warns(UserWarning, match="goes on from round 3"):
        run_experiment(experiment, out=tmp_path / "cut", resume=True)

    assert_same_run(tmp_path / "cut", tmp_path / "alone")


def test_where_no_checkpoint_is_whole_the_error_names_a_file_and_the_way_out(tmp_path):
    experiment = experiment_of("ditto")
    cut(experiment, tmp_path / "cut", 4)
    for path in checkpoints_in(tmp_path / "cut"):
        path.write_text("{}")

    with pytest.raises(RunFolderError, match=r"0000000\d.json is damaged.*plures doctor"):
        run_experiment(experiment, out=tmp_path / "cut", resume=True)


def test_records_that_were_changed_behind_the_runs_back_are_refused(tmp_path):
    experiment = experiment_of("fedavg")
    cut(experiment, tmp_path / "cut", 4)
    path = tmp_path / "cut" / records.ROUNDS
    path.write_bytes(path.read_bytes().replace(b'"round": 1', b'"round": 7', 1))

    with pytest.raises(RunFolderError, match=r"rounds\.jsonl is damaged"):
        run_experiment(experiment, out=tmp_path / "cut", resume=True)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 3}, "seed is 0 there and 3 now"),
        ({"method_options": {"lr": 0.7}}, "method_options.lr"),
        ({"rounds": 6}, "rounds is 5 there and 6 now"),
        ({"data": {"clients": 3}}, "data.clients"),
        ({"engine": "vectorised"}, "engine"),
    ],
)
def test_a_run_does_not_go_on_as_another(changes, told, tmp_path):
    cut(experiment_of("fedper"), tmp_path / "cut", 2)

    with pytest.raises(InvalidConfig, match=told):
        run_experiment(experiment_of("fedper", **changes), out=tmp_path / "cut", resume=True)
    with pytest.raises(PluresError):  # and without --resume nothing is overwritten
        run_experiment(experiment_of("fedper", **changes), out=tmp_path / "cut")


def test_a_finished_run_is_read_and_not_run_again(tmp_path):
    experiment = experiment_of("fedper")
    first = run_experiment(experiment, out=tmp_path / "run")
    changed = (tmp_path / "run" / records.RESULT).stat().st_mtime_ns

    again = run_experiment(experiment, out=tmp_path / "run", resume=True)

    assert again.as_json()["metrics"] == first.as_json()["metrics"]
    assert (tmp_path / "run" / records.RESULT).stat().st_mtime_ns == changed


def test_resuming_where_nothing_was_begun_begins(tmp_path):
    experiment = experiment_of("fedper")
    run_experiment(experiment, out=tmp_path / "alone")

    run_experiment(experiment, out=tmp_path / "new", resume=True)

    assert_same_run(tmp_path / "new", tmp_path / "alone")


def test_only_so_many_checkpoints_are_kept_and_a_finished_run_has_none(tmp_path):
    experiment = experiment_of("fedper", checkpoint={"every": 1, "keep": 3})
    cut(experiment, tmp_path / "run", 4)
    assert [int(path.stem) for path in checkpoints_in(tmp_path / "run")] == [4, 3, 2]

    run_experiment(experiment, out=tmp_path / "run", resume=True)

    assert not (tmp_path / "run" / records.CHECKPOINTS).exists()
    assert not (tmp_path / "run" / records.STATES).exists()
