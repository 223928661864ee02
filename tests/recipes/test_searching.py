"""Searches: what they find, what they stop, what they look at, and what they refuse."""

from __future__ import annotations

import csv
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plures import load_experiment, make_experiment, run_experiment
from plures.core.errors import InvalidConfig, InvalidInput, RunFolderError
from plures.core.goals import goal_named
from plures.core.types import Batch
from plures.data import SOURCES, DataSet, Source
from plures.methods import METHODS
from plures.recipes import Tuning, tune
from plures.recipes.search_folder import alone_in
from plures.report import records
from plures.report.studies import read_series
from tests.recipes.helpers import NEED_NORMS, table, tiny

ROOT = Path(__file__).parents[2]
LR = {"method_options.lr": {"low": 1e-5, "high": 1.0, "log": True}}
DIGITS = {
    "method": "fedalt",
    "rounds": 3,
    "data": {"clients": 4, "classes_per_client": 5},
    "method_options": {"lr": 1e-5},
    "evaluation": {"every": 1},
}


def searched(out: Path, space=LR, *, trials: int = 3, refit: int | None = None, **changes) -> Tuning:
    method = changes.pop("method", "fedavg")
    settings = {name: changes.pop(name) for name in ("seeds", "sampler", "pruner", "metric") if name in changes}
    return tune(make_experiment(table(method, **changes)), space, out=out, trials=trials, refit=refit, **settings)


def told_by(out: Path, space=LR, **changes) -> list[str]:
    """The problems of a search, which are told before anything is written."""
    with pytest.raises(InvalidInput) as told:
        searched(out, space, **changes)
    assert not out.exists()
    return told.value.problems


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Tuning:
    """Digits, with an experiment whose own rate is far too small."""
    space = {"method_options.lr": {"low": 1e-5, "high": 3.0, "log": True}, "method": ["fedalt", "fedsim"]}
    out = tmp_path_factory.mktemp("search") / "found"
    return tune(make_experiment(DIGITS), space, out=out, trials=16, refit=2)


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
    assert [int(row["trial"]) for row in rows] == list(range(16))
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
    assert [trial.status for trial in found.trials] == ["finished"] * 3
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


def test_a_search_goes_on_and_finished_trials_are_not_repeated(tmp_path):
    whole = searched(tmp_path / "whole", trials=5)
    first = searched(tmp_path / "parts", trials=2)
    before = (tmp_path / "parts/trials/0001" / records.RESULT).stat().st_mtime_ns
    both = searched(tmp_path / "parts", trials=5)
    assert (tmp_path / "parts/trials/0001" / records.RESULT).stat().st_mtime_ns == before
    assert both.trials[:2] == first.trials
    assert [(t.options, t.value) for t in both.trials] == [(t.options, t.value) for t in whole.trials]


@pytest.mark.parametrize("pruner", ["median", "halving"])
def test_what_was_interrupted_in_a_trial_gives_the_same_trials_in_the_end(tmp_path, pruner):
    class Impatient:
        def __init__(self) -> None:
            self.trials = 0

        def search_started(self, *told) -> None: ...

        def trial_started(self, *told) -> None:
            self.trials += 1

        def trial_ended(self, *told) -> None: ...

        def started(self, *told) -> None: ...

        def round_done(self, report, metrics) -> None:
            if self.trials == 7 and report.round == 1:
                raise KeyboardInterrupt

        def ended(self) -> None: ...

    space = {"method_options.lr": {"low": 1e-5, "high": 1.0, "log": True}}
    experiment = make_experiment(table(rounds=3, evaluation={"every": 1}))
    given = {"trials": 14, "pruner": pruner, "metric": "loss"}
    whole = tune(experiment, space, out=tmp_path / "whole", **given)
    with pytest.raises(KeyboardInterrupt):
        tune(experiment, space, out=tmp_path / "parts", watcher=Impatient(), **given)
    assert records.read_result(tmp_path / "parts/trials/0006")["status"] == "interrupted"
    parts = tune(experiment, space, out=tmp_path / "parts", **given)
    summed = [[(t.options, t.value, t.status, t.rounds) for t in one.trials] for one in (whole, parts)]
    assert summed[0] == summed[1]
    assert any(trial.status == "stopped" for trial in whole.trials)


def test_a_refit_goes_on_where_it_ended(tmp_path):
    searched(tmp_path / "out", refit=1)
    (first,) = read_series([tmp_path / "out/refit"])
    before = (first.runs[0].folder / records.RESULT).stat().st_mtime_ns
    searched(tmp_path / "out", refit=2)
    (both,) = read_series([tmp_path / "out/refit"])
    assert sorted(both.runs) == [0, 1]
    assert (first.runs[0].folder / records.RESULT).stat().st_mtime_ns == before


def test_another_search_in_the_same_folder_is_refused(tmp_path):
    searched(tmp_path / "out", trials=1)
    with pytest.raises(InvalidConfig) as told:
        searched(tmp_path / "out", {"method_options.lr": [0.1]}, trials=1, rounds=1)
    problems = "\n".join(told.value.problems)
    assert "experiment.rounds = 2, which is 1 now" in problems
    assert "tune.search.method_options.lr" in problems
    assert "--out" in problems


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="is not empty"):
        searched(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_what_was_killed_before_its_study_began_begins_anew(tmp_path):
    for name in (".lock", ".lock-journal", ".study.db.partial", ".study.db.partial-journal"):
        (tmp_path / name).write_bytes(b"")
    assert len(searched(tmp_path, trials=1).trials) == 1


def test_a_damaged_study_is_one_clear_error(tmp_path):
    searched(tmp_path / "out", trials=1)
    (tmp_path / "out/study.db").write_bytes(b"not a database" * 100)
    with pytest.raises(RunFolderError, match=r"study.db cannot be used"):
        searched(tmp_path / "out", trials=1)


def test_two_searches_in_one_folder_at_once_are_refused(tmp_path):
    searched(tmp_path / "out", trials=1)
    with alone_in(tmp_path / "out"), pytest.raises(RunFolderError, match="Another search is under way"):
        searched(tmp_path / "out", trials=2)


@pytest.mark.parametrize(
    ("space", "changes", "says"),
    [
        ({"method_options.lrr": [0.1, 0.2]}, {}, "fedavg has no option 'lrr'"),
        ({"rouns": [1, 2]}, {}, "Unknown key 'rouns'. Did you mean 'rounds'"),
        ({"method": ["fedavg", "fedspam"]}, {}, 'With method = "fedspam": '),
        ({"method": ["fedavg", "fedalt"], "split.personal": ["head"]}, {}, 'With method = "fedavg": fedavg has no'),
        ({"method_options.lr": {"low": -1.0, "high": 0.1}}, {}, "With method_options.lr = -1.0: "),
        ({"data.clients": [2, 4]}, {}, "data.clients changes who has which examples"),
        (LR, {"data": {"split": [0.8, 0.0, 0.2]}}, "no validation examples"),
        (LR, {"data": {"merge_validation": True}}, "remove merge_validation"),
        (LR, {"metric": "personal/test/accuracy"}, "judged on validation data alone"),
        (LR, {"metric": "acuracy"}, "Did you mean 'accuracy'"),
        (LR, {"metric": "persnal/validation/loss"}, "there is no model 'persnal'"),
        (LR, {"metric": "global/validation/loss", "method": "fedalt"}, "no global model"),
        (LR, {"sampler": "grid"}, "a range without a step"),
        (LR, {"sampler": "tpf"}, "tune.sampler = 'tpf'"),
        (LR, {"evaluation": {"guard": True}, "method": "ditto", "refit": 1}, "no validation examples left"),
    ],
)
def test_what_is_wrong_is_told_before_the_first_trial(space, changes, says, tmp_path):
    assert says in "\n".join(told_by(tmp_path / "out", space, **changes))


def test_an_experiment_without_a_search_is_told(tmp_path):
    with pytest.raises(InvalidConfig, match=r"no table \[tune.search\]"):
        tune(make_experiment(table()), out=tmp_path / "out")


def test_a_file_with_a_search_runs_as_ever():
    plain = run_experiment(make_experiment(table()))
    assert run_experiment(make_experiment(table(tune={"search": LR}))).fingerprint == plain.fingerprint


def test_a_missing_package_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert told_by(tmp_path / "out") == [
        'Searching needs the package optuna, which is not installed: pip install "plures[tune]".'
    ]


def test_one_module_alone_imports_optuna():
    importing = [
        path.name
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"^\s*(import|from) optuna", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert importing == ["optuna_study.py"]


def test_the_example_finds_better_options_than_its_own(tmp_path):
    experiment = load_experiment(ROOT / "examples" / "tune.toml")
    found = tune(experiment, out=tmp_path / "out", trials=2)
    own = run_experiment(experiment).metrics["personal/validation/accuracy"].weighted
    assert found.best.value > own + 0.1
