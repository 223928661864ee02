"""A few rounds on real data, each well above chance; they need the data sets in folders of PLURES_DATA."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from plures import make_experiment, run_experiment
from plures.core.errors import InvalidData
from plures.data import find_source
from plures.recipes.build import build

STEPS = {"steps": 10, "batch": 32}
ADAM = {"optimizer": "adam", "lr": 0.003}


class Case(NamedTuple):
    """An experiment, what it is judged by, and how good it must at least be."""

    experiment: dict[str, Any]
    metric: str
    least: float
    """With the chance it stands against in a comment."""


CASES = {
    "fashion-mnist": Case(
        {
            "method": "pflego",
            "rounds": 10,
            "cohort": 10,
            "method_options": {"tau": 20, "client_lr": 0.1, "server": 0.005, "start": "common"},
            "data": {"partition": "by_class", "clients": 20, "classes_per_client": 2},
            "model": {"name": "mlp", "hidden": [50]},
        },
        "personal/test/accuracy",
        0.85,  # two classes each: 0.5
    ),
    "cifar-10": Case(
        {
            "method": "fedper",
            "rounds": 8,
            "cohort": 5,
            "method_options": {"budget": STEPS, "lr": ADAM, "start": "common"},
            "data": {"partition": "shards", "clients": 10, "shards_per_client": 2, "augment": ["crop", "flip"]},
            "model": {"name": "lenet32", "filters": [16, 32], "fc": [64]},
        },
        "personal/test/accuracy",
        0.6,  # two classes for most: 0.5
    ),
    "omniglot": Case(
        {
            "method": "fedper",
            "rounds": 6,
            "cohort": 4,
            "method_options": {"budget": {"steps": 60, "batch": 16}, "lr": ADAM, "start": "common"},
            "data": {"partition": "natural", "sample_clients": 4, "label_space": "local", "split_by": "group"},
            "model": {"name": "cnn_o", "filters": 16},
        },
        "personal/test/accuracy",
        0.1,  # 14 to 55 characters in an alphabet: below 0.07
    ),
    "unipen": Case(
        {
            "method": "fedalt",
            "rounds": 10,
            "cohort": 10,
            "method_options": {"budget": STEPS, "lr": 0.1},
            "data": {"partition": "natural", "min_examples": 300, "sample_clients": 40},
            "model": {"name": "mlp", "hidden": [100]},
        },
        "personal/test/accuracy",
        0.1,  # 62 classes: 0.02
    ),
    "stackexchange": Case(
        {
            "method": "fedavg",
            "rounds": 10,
            "cohort": 5,
            "method_options": {"budget": {"steps": 8, "batch": 16}, "lr": 0.5, "clip_norm": 1.0},
            "data": {
                "source": {"name": "stackexchange", "vocabulary": 1000},
                "partition": "natural",
                "split_by": "time",
            },
            "model": {"name": "transformer", "width": 32, "depth": 1, "heads": 2, "hidden": 64},
        },
        "global/test/accuracy",
        0.03,  # 1,000 words: 0.001
    ),
    "heart-disease": Case(
        {
            "method": "ditto",
            "rounds": 15,
            "method_options": {"lr": 0.05},
            "data": {"partition": "natural"},
            "model": {"name": "logistic"},
        },
        "personal/test/accuracy",
        0.7,  # 509 of 920 are diseased: 0.55
    ),
}


def experiment_of(name: str):
    table = CASES[name].experiment
    rounds = table["rounds"]
    evaluation = {"every": rounds, "splits": ["test"]} | table.get("evaluation", {})
    data = {"source": name} | table["data"]
    return make_experiment(table | {"evaluation": evaluation, "data": data, "seed": 1})


@pytest.mark.data
@pytest.mark.parametrize("name", CASES)
def test_a_few_rounds_on_real_data_are_above_chance(name):
    try:
        built = build(experiment_of(name))
    except InvalidData as error:
        if "is not at hand" not in str(error):
            raise
        pytest.skip(f"{name} is not at hand: no folder of PLURES_DATA has it")
    assert built.federation.num_clients > 1
    result = run_experiment(experiment_of(name))
    assert result.metrics[CASES[name].metric].weighted > CASES[name].least


def test_every_case_names_a_data_set_that_there_is():
    for name in CASES:
        assert find_source(name).files
