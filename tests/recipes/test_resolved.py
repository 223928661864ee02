"""The resolved configuration: every default written out, and the same result when it is run again."""

from __future__ import annotations

import inspect
import tomllib

import pytest

from plures import load_experiment, make_experiment, run_experiment
from plures.methods import METHODS
from plures.recipes.build import build
from tests.recipes.helpers import built, ran, table

VARIANTS = {
    "cohort": {"method": "fedavg", "cohort": 0.5},
    "server": {"method": "fedavg", "server": {"optimizer": "fedadam", "lr": 0.01, "weight": "uniform"}},
    "rate of the server": {"method": "pflego", "server": {"lr": {"schedule": "linear", "start": 0.01}}},
    "split": {"method": "fedalt", "split": {"personal": ["body.*"]}},
    "buffers": {
        "method": "fedper",
        "split": {"buffers": "personal"},
        "model": {"batch_norm": True},
        "method_options": {"budget": {"steps": 2}},
    },
    "schedule": {"method": "fedavg", "method_options": {"lr": {"schedule": "cosine", "start": 0.2}}},
    "optimiser": {"method": "local", "method_options": {"lr": {"optimizer": "adam", "lr": 0.01, "betas": [0.8, 0.9]}}},
    "batches": {"method": "fedavg", "method_options": {"weight": {"batches": 3}}},
    "cap": {"method": "fedavg", "method_options": {"budget": {"epochs": 3, "batch": 2, "cap": 4}}},
    "data": {"method": "pflego", "data": {"partition": "dirichlet", "alpha": 0.2, "label_space": "local", "seed": 3}},
    "evaluation": {
        "method": "finetune",
        "evaluation": {"every": 1, "models": ["finetuned"], "splits": ["train", "test"], "post_local": True},
    },
}


def text_of(**changes) -> str:
    return built(**changes).configuration


@pytest.mark.parametrize("method", METHODS)
def test_the_resolved_configuration_of_every_method_runs_again_to_the_same_result(method, tmp_path):
    first = ran(method, tmp_path / "first")

    again = run_experiment(load_experiment(tmp_path / "first" / "experiment.toml"))

    assert again.fingerprint == first.fingerprint
    assert again.metrics == first.metrics


@pytest.mark.parametrize("method", METHODS)
def test_resolving_the_resolved_configuration_gives_the_same_text(method):
    text = text_of(method=method)

    assert build(make_experiment(tomllib.loads(text))).configuration == text


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_whatever_was_chosen_is_kept_and_runs_again_to_the_same_result(changes):
    first = run_experiment(make_experiment(table(**changes)))
    text = text_of(**changes)

    again = run_experiment(make_experiment(tomllib.loads(text)))

    assert again.fingerprint == first.fingerprint
    assert again.metrics == first.metrics
    assert build(make_experiment(tomllib.loads(text))).configuration == text


def test_a_participation_rule_runs_again_to_the_same_result():
    changes = {"participation": {"rule": "binomial", "rate": 0.5}}

    again = run_experiment(make_experiment(tomllib.loads(text_of(**changes))))

    assert again.fingerprint == ran(**changes).fingerprint


@pytest.mark.parametrize("method", METHODS)
def test_every_default_of_the_method_that_a_file_can_say_is_written_out(method):
    options = tomllib.loads(text_of(method=method))["method_options"]

    parameters = inspect.signature(METHODS[method].make).parameters
    assert options.keys() == {name for name, parameter in parameters.items() if parameter.default is not None}


def test_defaults_are_written_as_a_reader_would_write_them():
    options = tomllib.loads(text_of(method="fedalt"))["method_options"]

    assert options["personal"] == "head"
    assert options["lr"] == 0.1
    assert options["budget"] == {"epochs": 1, "batch": 32}
    assert options["weight"] == "samples"


def test_defaults_of_model_and_partition_are_written_out_too():
    found = tomllib.loads(build(make_experiment({"method": "fedavg"})).configuration)

    assert found["model"].get("hidden") == [64]
    assert found["data"].get("classes_per_client") == 2


def test_top_level_keys_are_written_out_and_the_folder_is_left_out():
    found = tomllib.loads(text_of(out="somewhere", seed=7))

    assert {key: found[key] for key in ("method", "rounds", "cohort", "seed", "engine", "device")} == {
        "method": "fedavg",
        "rounds": 2,
        "cohort": "all",
        "seed": 7,
        "engine": "auto",
        "device": "cpu",
    }
    assert "out" not in found


def test_the_written_configuration_holds_changes_made_on_the_command_line(tmp_path):
    path = tmp_path / "short.toml"
    path.write_text('method = "fedavg"\n[data]\nsource = "tiny"\n', encoding="utf-8")

    run_experiment(load_experiment(path, ["rounds=1", "data.clients=4", "method_options.lr=0.3"]), out=tmp_path / "run")

    found = tomllib.loads((tmp_path / "run" / "experiment.toml").read_text(encoding="utf-8"))
    assert (found["rounds"], found["data"]["clients"], found["method_options"]["lr"]) == (1, 4, 0.3)
