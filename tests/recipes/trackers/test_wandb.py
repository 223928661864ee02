"""Weights & Biases, offline: what was logged is read back from its own file."""

from __future__ import annotations

import pytest

from plures import make_experiment, run_experiment
from tests.recipes.trackers import wandb_files


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wandb")
    options = {"project": "mine", "mode": "offline", "folder": str(folder), "tags": ["tried"]}
    table = {"method": "fedalt", "rounds": 2, "data": {"clients": 5}, "evaluation": {"every": 2}}
    result = run_experiment(make_experiment({**table, "track": {"wandb": options}}), out=folder / "run")
    return result, wandb_files.read_records(folder)


def test_each_round_is_a_step_with_the_numbers_of_the_records(logged):
    result, records = logged
    first, second = wandb_files.history(records)

    assert (first["_step"], second["_step"]) == (1, 2)
    assert first["loss/shared"] == result.history[0]["losses"]["shared"]
    assert "personal/test/accuracy" not in first
    assert second["personal/test/accuracy"] == result.metrics["personal/test/accuracy"].weighted
    assert second["bytes"] == sum(line["bytes_down"] + line["bytes_up"] for line in result.history)


def test_the_configuration_and_the_facts_are_there(logged):
    result, records = logged
    config = wandb_files.config(records)

    assert config["data"]["clients"] == 5
    assert (config["method"], config["seed"], config["engine"]) == ("fedalt", 0, result.facts["engine"])


def test_the_end_has_status_selected_numbers_and_code_0(logged):
    result, records = logged
    summary = wandb_files.summary(records)

    assert summary["status"] == "finished"
    assert summary["selected/round"] == result.selected_round
    assert wandb_files.exit_code(records) == 0
