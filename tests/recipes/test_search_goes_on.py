"""A search that ended early goes on, and comes to what it would have come to."""

from __future__ import annotations

import pytest

from plures import make_experiment
from plures.cli.tune import earlier_refit_line
from plures.recipes import tune
from plures.report import records
from plures.report.studies import read_series
from tests.recipes.helpers import table
from tests.recipes.searches import searched


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
    given = {"trials": 9, "pruner": pruner, "metric": "loss"}
    whole = tune(experiment, space, out=tmp_path / "whole", **given)
    with pytest.raises(KeyboardInterrupt):
        tune(experiment, space, out=tmp_path / "parts", watcher=Impatient(), **given)
    assert records.read_result(tmp_path / "parts/trials/0006")["status"] == "interrupted"
    parts = tune(experiment, space, out=tmp_path / "parts", **given)
    summed = [[(t.options, t.value, t.status, t.rounds) for t in one.trials] for one in (whole, parts)]
    assert summed[0] == summed[1]
    assert any(trial.status == "stopped" for trial in whole.trials)


def test_a_refit_of_what_is_no_longer_the_best_is_kept_and_marked(tmp_path):
    space = {"method_options.lr": [1e-6, 1e-1]}
    given = {"sampler": "grid", "metric": "loss"}
    first = searched(tmp_path / "out", space, trials=1, refit=1, **given)
    assert (first.refit["trial"], first.refit["of_best"]) == (0, True)
    second = searched(tmp_path / "out", space, trials=2, **given)
    assert second.best.number == 1
    assert second.refit == {**first.refit, "of_best": False}
    assert "refit of trial 0 (" in earlier_refit_line(second.refit)
    assert "not the best any more" in earlier_refit_line(second.refit)
    third = searched(tmp_path / "out", space, trials=2, refit=1, **given)
    assert (third.refit["trial"], third.refit["of_best"]) == (1, True)


def test_a_damaged_refit_is_none(tmp_path):
    found = searched(tmp_path / "out", trials=1, refit=1)
    (run,) = (found.folder / "refit").glob("*/seed-0")
    (run / records.RESULT).write_text("{")
    assert searched(tmp_path / "out", trials=1).refit is None


def test_a_refit_goes_on_where_it_ended(tmp_path):
    searched(tmp_path / "out", refit=1)
    (first,) = read_series([tmp_path / "out/refit"])
    before = (first.runs[0].folder / records.RESULT).stat().st_mtime_ns
    searched(tmp_path / "out", refit=2)
    (both,) = read_series([tmp_path / "out/refit"])
    assert sorted(both.runs) == [0, 1]
    assert (first.runs[0].folder / records.RESULT).stat().st_mtime_ns == before
