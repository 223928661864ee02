"""Searches: what they find, what they stop, what they look at, and what they refuse."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plures import load_experiment, make_experiment, run_experiment
from plures.core.goals import goal_named
from plures.core.types import Batch
from plures.data import SOURCES, DataSet, Source
from plures.methods import METHODS
from plures.recipes import Tuning, tune
from plures.report import records
from plures.report.studies import read_series
from tests.recipes.helpers import NEED_NORMS, table, tiny
from tests.recipes.searches import LR, searched

ROOT = Path(__file__).parents[2]
DIGITS = {
    "method": "fedalt",
    "rounds": 3,
    "data": {"clients": 4, "classes_per_client": 5},
    "method_options": {"lr": 1e-5},
    "evaluation": {"every": 1},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Tuning:
    """Digits, with an experiment whose own rate is far too small."""
    space = {"method_options.lr": {"low": 1e-5, "high": 3.0, "log": True}, "method": ["fedalt", "fedsim"]}
    out = tmp_path_factory.mktemp("search") / "found"
    return tune(make_experiment(DIGITS), space, out=out, trials=12, refit=2)


def test_a_search_finds_a_better_rate_than_a_bad_default(found):
    default = run_experiment(make_experiment(DIGITS)).metrics["personal/validation/accuracy"].weighted
    assert found.best.value > default + 0.3
    assert found.best.value == max(trial.value for trial in found.trials if trial.status == "finished")


def test_bad_trials_are_stopped_at_a_whole_round(found):
    stopped = [trial for trial in found.trials if trial.status == "stopped"]
    assert stopped
    for trial in stopped:
        result = records.read_result(found.folder / trial.folder)
        assert (result["status"], result["rounds_done"]) == ("stopped", trial.rounds)
        assert trial.rounds < DIGITS["rounds"]
        assert len(records.read_rounds(found.folder / trial.folder)) == trial.rounds
        assert trial.value == result["metrics"]["personal/validation/accuracy"]["weighted"]


def test_every_trial_is_a_run_folder_that_repeats(found):
    folder = found.folder / found.best.folder
    again = run_experiment(load_experiment(folder / records.EXPERIMENT))
    assert again.fingerprint == records.read_result(folder)["fingerprint"]
    assert again.metrics["personal/validation/accuracy"].weighted == found.best.value
    finished = [found.folder / trial.folder for trial in found.trials if trial.status == "finished"]
    assert sum(len(series.runs) for series in read_series(finished)) == len(finished)


def test_trials_never_look_at_test_data(found):
    for trial in found.trials:
        folder = found.folder / trial.folder
        for file in (records.RESULT, records.ROUNDS):
            assert "/validation/" in (folder / file).read_text(encoding="utf-8")
            assert "/test/" not in (folder / file).read_text(encoding="utf-8")
        assert {row["split"] for row in records.read_clients(folder)} == {"validation"}


def test_the_best_configuration_is_complete_and_gives_what_the_trial_had(found):
    best = load_experiment(found.best_file)
    assert best.tune is None
    assert best.method_options["lr"] == found.best.options["method_options.lr"]
    result = run_experiment(best)
    assert result.metrics["personal/validation/accuracy"].weighted == found.best.value
    assert "personal/test/accuracy" in result.metrics


def test_the_files_of_a_search_tell_of_every_trial(found):
    with (found.folder / "trials.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["trial"]) for row in rows] == list(range(12))
    assert [row["status"] for row in rows] == [trial.status for trial in found.trials]
    assert {row["method"] for row in rows} <= {"fedalt", "fedsim"}
    told = json.loads((found.folder / "tuning.json").read_text(encoding="utf-8"))
    assert told == json.loads(json.dumps(found.as_json()))
    assert told["best"]["number"] == found.best.number
    assert sum(told["importance"].values()) == pytest.approx(1)


def test_a_refit_trains_on_validation_data_too_and_is_tested_in_its_last_round_alone(found):
    best = run_experiment(load_experiment(found.best_file, ["rounds=1"]))
    (series,) = read_series([found.folder / "refit"])
    assert sorted(series.runs) == found.refit["seeds"] == [0, 1]
    tested = [run.result["metrics"]["personal/test/accuracy"]["weighted"] for run in series.runs.values()]
    assert (found.refit["values"], found.refit["mean"]) == (tested, sum(tested) / 2)
    for run in series.runs.values():
        rows = {row["name"]: row for row in records.read_federation(run.folder)}
        for client in range(best.federation.num_clients):
            data, row = best.federation.client(client), rows[best.federation.name(client)]
            sizes = {split: len(targets) for split, targets in data.targets.items()}
            assert int(row["train"]) == sizes["train"] + sizes["validation"]
            assert (int(row["validation"]), int(row["test"])) == (0, sizes["test"])
        assert {(row["split"], row["round"]) for row in records.read_clients(run.folder)} == {("test", "3")}
        assert run.result["selected"]["round"] is None
        assert load_experiment(run.folder / records.EXPERIMENT).data.merge_validation


def test_the_refit_runs_again_from_its_own_file_to_the_same_bits(found):
    folder = found.folder / "refit" / load_experiment(found.best_file).method / "seed-1"
    again = run_experiment(load_experiment(folder / records.EXPERIMENT))
    assert again.fingerprint == records.read_result(folder)["fingerprint"]


def test_poisoned_test_labels_change_nothing(tmp_path, monkeypatch):
    def with_tests(poison: int) -> DataSet:
        data = tiny()
        inputs, targets = data.examples
        return replace(data, test=Batch(inputs.clone(), (targets + poison) % 4))

    values, tests = [], []
    for poison in (0, 1):
        source = Source(name="poisoned", about="", files=(), load=lambda poison=poison: with_tests(poison))
        monkeypatch.setitem(SOURCES, "poisoned", source)
        found = searched(tmp_path / str(poison), data={"source": "poisoned", "partition": "iid"})
        results = [records.read_result(found.folder / trial.folder) for trial in found.trials]
        states = [result["fingerprint"]["final_state"] for result in results]
        values.append([(trial.options, trial.value) for trial in found.trials] + states)
        tests.append(run_experiment(load_experiment(found.best_file)).federation.client(0).test.targets)
    assert values[0] == values[1]
    assert not torch.equal(*tests)


def test_a_trial_that_diverges_is_a_bad_one_and_not_the_end(tmp_path):
    space = {"method_options.lr": [0.1, 1e30, 0.2]}
    found = searched(tmp_path / "out", space, sampler="grid", rounds=3, trials=9)
    assert [trial.status for trial in found.trials] == ["finished", "diverged", "finished"]
    assert found.trials[1].value is None
    assert "no longer" in found.trials[1].reason or "finite" in found.trials[1].reason
    assert records.read_result(tmp_path / "out" / "trials/0001")["status"] == "diverged"


def test_several_seeds_are_a_study_of_their_own_and_their_mean_counts(tmp_path):
    found = searched(tmp_path / "out", trials=2, seeds=2, seed=5)
    for trial in found.trials:
        (series,) = read_series([found.folder / trial.folder])
        results = [series.runs[seed].result for seed in (5, 6)]
        values = [result["metrics"]["global/validation/accuracy"]["weighted"] for result in results]
        assert trial.values == tuple(values)
        assert trial.value == sum(values) / 2


def test_a_smaller_loss_is_better(tmp_path):
    found = searched(tmp_path / "out", {"method_options.lr": [1e-6, 0.5]}, sampler="grid", metric="loss", rounds=4)
    assert found.best.options == {"method_options.lr": 0.5}
    assert found.best.value < found.trials[0].value
    assert found.as_json()["larger_is_better"] is False


def test_another_model_and_metric_may_be_asked_for(tmp_path):
    metric = "finetuned/validation/macro_f1"
    found = searched(tmp_path / "out", trials=1, metric=metric)
    result = records.read_result(found.folder / found.trials[0].folder)
    assert found.best.value == result["metrics"][metric]["weighted"]


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_of_points_that_can_be_counted_none_is_tried_twice(sampler, tmp_path):
    space = {"method_options.lr": {"low": 0.1, "high": 0.3, "step": 0.2}, "cohort": {"low": 2, "high": 4}}
    found = searched(tmp_path / "out", space, sampler=sampler, rounds=1, trials=99)
    points = {tuple(trial.options.values()) for trial in found.trials}
    assert len(points) == len(found.trials) == 6


def test_lists_and_tables_may_be_values(tmp_path):
    space = {
        "method_options.budget": [{"epochs": 1, "batch": 4}, {"steps": 2, "batch": "full"}],
        "model.hidden": [[5], [3, 3]],
    }
    found = searched(tmp_path / "out", space, trials=4, sampler="grid")
    assert [trial.options["model.hidden"] for trial in found.trials] == [[5], [3, 3], [5], [3, 3]]
    assert load_experiment(found.folder / "trials/0003" / records.EXPERIMENT).method_options["budget"] == {
        "steps": 2,
        "batch": "full",
    }


@pytest.mark.parametrize("normed", [False, True], ids=["plain network", "normed network"])
def test_every_method_can_be_searched(normed, tmp_path):
    methods = [method for method in METHODS if (method in NEED_NORMS) == normed]
    changes = {"rounds": 1, "trials": 99, "model": {"batch_norm": normed}}
    found = searched(tmp_path / "out", {"method": methods}, sampler="grid", **changes)
    assert [trial.options["method"] for trial in found.trials if trial.status == "finished"] == methods


def test_a_pipeline_is_judged_by_what_it_ends_with(tmp_path):
    pipeline = {"pretrain": {"rounds": 2}, "tune": "method", "cache": str(tmp_path / "kept")}
    found = searched(tmp_path / "out", {"method_options.lr": [0.1, 0.3]}, method="fedalt", pipeline=pipeline, refit=1)
    assert [trial.status for trial in found.trials] == ["finished"] * 2
    result = records.read_result(found.folder / found.best.folder)
    assert found.best.value == result["metrics"]["finetuned/validation/accuracy"]["weighted"]
    assert not any("/test/" in name for name in result["metrics"])
    (series,) = read_series([found.folder / "refit"])
    assert "finetuned/test/accuracy" in series.first.result["metrics"]


def test_regression_is_judged_by_its_own_metric(tmp_path, monkeypatch):
    def numbers() -> DataSet:
        inputs = tiny().examples.inputs
        return DataSet(name="numbers", examples=Batch(inputs, inputs.sum(1)), goal=goal_named("regression"))

    monkeypatch.setitem(SOURCES, "numbers", Source(name="numbers", about="", files=(), load=numbers))
    found = searched(
        tmp_path / "out",
        {"method_options.lr": [1e-6, 0.1]},
        sampler="grid",
        data={"source": "numbers", "partition": "iid"},
    )
    assert found.best.options == {"method_options.lr": 0.1}
    assert found.as_json()["larger_is_better"] is False


def test_a_file_with_a_search_runs_as_ever():
    plain = run_experiment(make_experiment(table()))
    assert run_experiment(make_experiment(table(tune={"search": LR}))).fingerprint == plain.fingerprint


def test_the_example_finds_better_options_than_its_own(tmp_path):
    experiment = load_experiment(ROOT / "examples" / "tune.toml")
    found = tune(experiment, out=tmp_path / "out", trials=2)
    own = run_experiment(experiment).metrics["personal/validation/accuracy"].weighted
    assert found.best.value > own + 0.1
