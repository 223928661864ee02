"""Metrics beside the usual ones, in the records of a run."""

from __future__ import annotations

import math

import pytest

from plures.core.errors import InvalidInput
from plures.evaluate.metrics import MORE_METRICS
from plures.report import records
from tests.recipes.helpers import ran


def test_every_metric_asked_for_is_stored_for_every_client_and_in_the_result(tmp_path):
    """So that none is created and never filled."""
    wanted = list(MORE_METRICS["classification"])
    data = {"source": "digits", "clients": 8}
    result = ran("fedper", tmp_path / "run", data=data, evaluation={"metrics": wanted})
    for name in wanted:
        assert 0 <= result.metrics[f"personal/test/{name}"].weighted <= 1
    rows = list(records.read_clients(tmp_path / "run"))
    assert all(0 <= float(row[name]) <= 1 for row in rows for name in wanted)
    stored = records.read_result(tmp_path / "run")["metrics"]
    assert {f"personal/test/{name}" for name in wanted} <= set(stored)


def test_where_a_metric_does_not_exist_records_have_nothing(tmp_path):
    """Clients of one class each have no AUC."""
    result = ran("fedper", tmp_path / "run", data={"classes_per_client": 1}, evaluation={"metrics": ["auc"]})
    assert math.isnan(result.metrics["personal/test/auc"].weighted)
    rows = list(records.read_clients(tmp_path / "run"))
    assert {row["auc"] for row in rows} == {""}
    assert records.read_result(tmp_path / "run")["metrics"]["personal/test/auc"]["weighted"] is None


@pytest.mark.parametrize(("name", "says"), [("f1", "macro_f1"), ("r2", "no 'r2'")])
def test_an_unknown_metric_is_an_error_before_round_1(name, says):
    with pytest.raises(InvalidInput, match=says):
        ran("fedavg", evaluation={"metrics": [name]})


def test_the_rounds_to_each_target_are_in_the_result(tmp_path):
    """Evaluated in every round: the first whose test accuracy is as good."""
    plan = {"every": 1, "targets": [0.0, 1.0]}
    result = ran("fedper", tmp_path / "run", rounds=3, evaluation=plan)
    found = records.read_result(tmp_path / "run")["rounds_to"]
    assert found == result.rounds_to
    assert (found["metric"], found["targets"]) == ("personal/test/accuracy", {"0": 1, "1": ">3"})
    values = [line["metrics"]["personal/test/accuracy"]["weighted"] for line in result.history]
    assert max(values) < 1
    wanted = next(round for round, value in enumerate(values, 1) if value >= 0.8 * values[-1])
    assert found["share_of_final"] == wanted


def test_a_target_that_is_no_number_is_refused():
    with pytest.raises(InvalidInput, match="target"):
        ran("fedavg", evaluation={"targets": [math.nan]})


def test_a_target_in_percent_is_refused_for_it_would_never_be_reached():
    with pytest.raises(InvalidInput, match="an accuracy is a share"):
        ran("fedavg", evaluation={"targets": [80.0]})
