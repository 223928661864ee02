"""MLflow: what was logged to a store of files is read back by its own client."""

from __future__ import annotations

import pytest

from plures.core.errors import Diverged
from tests.recipes.helpers import ran


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store of files needs no database, which takes ten seconds to make."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return (tmp_path / "store").as_uri()


def logged(uri):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("plures").experiment_id])
    return client, run


def test_metrics_have_a_step_for_each_round_and_facts_are_parameters(store, tmp_path):
    tracked = {"mlflow": {"uri": store, "name": "first"}}
    result = ran("fedalt", tmp_path / "run", rounds=3, evaluation={"every": 2}, track=tracked)

    client, run = logged(store)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "first")
    assert run.data.params["method"] == "fedalt"
    assert run.data.metrics["personal/test/accuracy"] == result.metrics["personal/test/accuracy"].weighted
    assert run.data.metrics["selected/round"] == result.selected_round
    assert [point.step for point in client.get_metric_history(run.info.run_id, "personal/test/accuracy")] == [2, 3]
    assert len(client.get_metric_history(run.info.run_id, "loss/shared")) == 3


def test_a_run_that_diverges_has_failed(store, tmp_path):
    with pytest.raises(Diverged):
        ran(
            "fedavg",
            tmp_path / "run",
            method_options={"lr": 1e38, "budget": {"steps": 2}},
            track={"mlflow": {"uri": store}},
        )

    assert logged(store)[1].info.status == "FAILED"
