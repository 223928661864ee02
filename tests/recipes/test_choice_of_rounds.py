"""What a run reports: models, metrics and clients each by themselves, and rounds chosen without a look at test data."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn import functional as F

from plures import EvaluationPlan, run
from plures.core.goals import goal_named
from plures.core.types import Batch
from plures.data import SOURCES, DataSet, Source, federate, from_arrays
from plures.local import steps
from plures.methods import fedavg, fedper, finetune
from plures.models import mlp
from plures.report import records
from plures.report.tables import row_of
from tests.recipes.helpers import CLIENTS, ran

BOTH = ("global", "personal")


def scored(params, batch) -> tuple[float, float]:
    """Accuracy and loss of a plain network with these parameters."""
    network = mlp(shape=(4,), hidden=(5,), classes=4)
    network.load_state_dict(params)
    with torch.no_grad():
        output = network(batch.inputs)
    right = output.argmax(dim=1) == batch.targets
    return float(right.double().mean()), float(F.cross_entropy(output, batch.targets))


def rows_of(folder, **wanted) -> list[dict[str, str]]:
    rows = records.read_clients(folder)
    return [row for row in rows if all(row[column] == str(value) for column, value in wanted.items())]


# Two kinds of models; elsewhere both wrote into one list, whose best value was then reported


def test_global_and_personal_values_are_recorded_apart_once_for_every_evaluated_round(tmp_path):
    ran("ditto", tmp_path / "run", rounds=5, cohort=2, evaluation={"every": 2})

    names = {"/".join(name) for name in product(BOTH, ("validation", "test"), ("accuracy", "loss"))}
    lines = {line["round"]: line["metrics"] for line in records.read_rounds(tmp_path / "run") if "metrics" in line}
    assert {number: set(metrics) for number, metrics in lines.items()} == {2: names, 4: names, 5: names}
    rows = [(row["round"], row["client"], row["model"], row["split"]) for row in rows_of(tmp_path / "run")]
    assert len(rows) == len(set(rows)) == 3 * CLIENTS * 2 * 2


@pytest.mark.parametrize("number", [2, 4, 5])
def test_each_value_is_that_of_its_own_kind_of_model_evaluated_by_other_means(tmp_path, number):
    """A run of so many rounds ends with the models that a longer one had then."""
    settings = {"cohort": 2, "evaluation": {"every": 2}, "method_options": {"lr": 0.5}}
    ran("ditto", tmp_path / "long", rounds=5, **settings)
    result = ran("ditto", tmp_path / "short", rounds=number, **settings)

    shared, kept = (load_file(tmp_path / "short" / name) for name in (records.SHARED, records.PERSONAL))
    visited = {client for line in result.history for client in line["cohort"]}
    assert len(visited) > 1
    for client in visited:
        twin = {name: kept[f"{client}/twin.{name}"] for name in shared}
        found = [scored(params, result.federation.client(client).test) for params in (shared, twin)]
        rows = rows_of(tmp_path / "long", round=number, client=client, split="test")
        assert [row["model"] for row in rows] == list(BOTH)
        for row, values in zip(rows, found, strict=True):
            assert (float(row["accuracy"]), float(row["loss"])) == pytest.approx(values, rel=1e-5)
        assert abs(found[0][1] - found[1][1]) > 1e-4


# Every client and every metric; elsewhere the round's clients alone, and an AUC that was never filled in


@pytest.mark.parametrize("method", ["fedavg", "fedper", "ditto", "finetune"])
def test_all_clients_are_in_the_records_of_every_evaluated_round_though_one_took_part(method, tmp_path):
    result = ran(method, tmp_path / "run", rounds=5, cohort=1, evaluation={"every": 2})

    assert {len(line["cohort"]) for line in result.history} == {1}
    models = {evaluation.model for evaluation in result.evaluations}
    for number, model, split in product((2, 4, 5), models, ("validation", "test")):
        rows = rows_of(tmp_path / "run", round=number, model=model, split=split)
        assert [row["client"] for row in rows] == ["0", "1", "2", "3"]
    assert len(rows_of(tmp_path / "run")) == 3 * len(models) * 2 * CLIENTS


def test_the_auc_is_in_the_line_of_every_evaluated_round_and_is_that_of_scikit_learn(tmp_path):
    """With two classes a client's AUC is that of the difference of their outputs."""
    data, plan = {"split": (0.25, 0.25, 0.5)}, {"every": 1, "metrics": ["auc"]}
    result = ran("fedper", tmp_path / "run", rounds=3, data=data, evaluation=plan, method_options={"lr": 0.02})

    for line in records.read_rounds(tmp_path / "run"):
        rows = rows_of(tmp_path / "run", round=line["round"], split="test")
        values, sizes = ([float(row[column]) for row in rows] for column in ("auc", "examples"))
        found, pooled = line["metrics"]["personal/test/auc"], np.average(values, weights=sizes)
        assert (found["weighted"], found["worst"]) == pytest.approx((pooled, min(values)), rel=1e-5)
    assert min(values) < max(values)
    for client, value in enumerate(values):
        inputs, targets = result.federation.client(client).test
        low, high = targets.unique().tolist()
        with torch.no_grad():
            output = result.personal_model(client)(inputs)
        assert value == pytest.approx(roc_auc_score(targets == high, output[:, high] - output[:, low]), rel=1e-5)


# The round, by hand; elsewhere the best value on test data was reported


class Climbing(nn.Module):
    """Outputs (0, s + x), or s + x alone, where s = u + v climbs with every step, in the same way for every client."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.u, self.v = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))

    def forward(self, inputs):
        height = inputs + self.u + self.v
        return height if self.outputs == 1 else torch.cat([torch.zeros_like(height), height], dim=1)


LOGISTIC = (0.5, 0.878, 1.171, 1.409, 1.604)
"""s of rounds 1 to 5: with rates of 1/2 for u and v, s grows by 1 - sigmoid(s) from 0 on inputs 0 of class 1."""
SQUARED = (2.0, 3.6, 4.88, 5.904)
"""With rates of 1/20, s grows by 2 * 2 * (10 - s) / 20 = (10 - s) / 5 from 0 on inputs 0 with targets 10."""
ONE = {"lr": 0.5, "budget": steps(1)}
METHODS = {
    "fedavg": (fedavg(**ONE), LOGISTIC[:4]),
    "fedper": (fedper(personal="v", start="common", **ONE), LOGISTIC[:4]),
    "finetune": (finetune(tune=steps(1), **ONE), LOGISTIC[1:]),  # one step ahead of the shared model
    "regression": (fedavg(lr=0.05, budget=steps(1)), SQUARED),
}


def best_at(low: float, high: float, goal: str) -> Batch:
    """Two examples that are both right from one height to the other only; or without error in the middle of them."""
    if goal == "regression":
        return Batch(torch.zeros(2, 1), torch.full((2,), (low + high) / 2))
    return Batch(torch.tensor([[0.05 - low], [-0.05 - high]]), torch.tensor([1, 0]))


def climbed(name: str, *, validation: tuple[int, int], test: int, out=None):
    """A run of four rounds whose validation and test examples are best in these rounds, from the first to the last."""
    method, heights = METHODS[name]
    goal = "regression" if name == "regression" else "classification"
    train = Batch(torch.zeros(2, 1), torch.full((2,), 10.0) if goal == "regression" else torch.tensor([1, 1]))
    first, last, tested = (heights[number - 1] for number in (*validation, test))
    client = (train, best_at(first, last, goal), best_at(tested, tested, goal))
    network, federation = Climbing(1 if goal == "regression" else 2), federate([client] * 3, goal=goal)
    return run(method, federation, network, rounds=4, evaluation=EvaluationPlan(every=1), out=out)


def curve(result, split: str) -> list[float]:
    """By round; as far as errors go, below zero, so that more is better."""
    sign = -1 if result.metric == "rmse" else 1
    name = f"{result.headline}/{split}/{result.metric}"
    return [sign * line["metrics"][name]["weighted"] for line in result.history]


def best_rounds(result, split: str) -> set[int]:
    return {number for number, value in enumerate(curve(result, split), 1) if value == max(curve(result, split))}


@pytest.mark.parametrize("name", METHODS)
def test_the_last_and_the_selected_round_are_reported_and_not_the_best_on_test_data(name, tmp_path):
    result = climbed(name, validation=(2, 2), test=1, out=tmp_path / "run")

    assert (best_rounds(result, "validation"), best_rounds(result, "test")) == ({2}, {1})
    stored, test = records.read_result(tmp_path / "run"), f"{result.headline}/test/{result.metric}"
    sign = -1 if result.metric == "rmse" else 1
    last, selected = (sign * part["metrics"][test]["weighted"] for part in (stored, stored["selected"]))
    assert (stored["metrics_round"], last) == (4, curve(result, "test")[3])
    assert (stored["selected"]["round"], selected) == (2, curve(result, "test")[1])
    assert sign * row_of("", stored, None).value == last
    assert max(curve(result, "test")) > max(last, selected)


def assert_alike_but_for_test(one, other) -> None:
    """The same choice, state and values, in every round; only what is said of test data differs."""
    assert one.selected_round == other.selected_round
    assert one.fingerprint["final_state"] == other.fingerprint["final_state"]
    for line, twin in zip(one.history, other.history, strict=True):
        assert line["losses"] == twin["losses"]
        assert line["metrics"].keys() == twin["metrics"].keys()
        for metric, values in line["metrics"].items():
            assert "/test/" in metric or values == twin["metrics"][metric]
    assert best_rounds(one, "test").isdisjoint(best_rounds(other, "test"))
    assert one.metrics != other.metrics


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("validation", [1, 2, 3, 4])
def test_the_selected_round_is_the_best_on_validation_data_wherever_test_data_are_best(name, validation):
    one, other = (climbed(name, validation=(validation, validation), test=test) for test in (1, 3))

    assert one.selected_round == validation
    assert_alike_but_for_test(one, other)


@pytest.mark.parametrize("name", ["fedavg", "fedper", "finetune"])
def test_of_rounds_that_are_equally_good_the_first_is_selected_whatever_test_data_say(name):
    one, other = (climbed(name, validation=(2, 3), test=test) for test in (1, 3))

    assert best_rounds(one, "validation") == {2, 3}
    assert one.selected_round == 2
    assert_alike_but_for_test(one, other)


# The round, with poisoned test labels


def examples(seed: int, goal: str) -> Batch:
    """Four classes around corners of their own; or a sum of the inputs, each with a weight of its own."""
    draws, labels = np.random.default_rng(seed), np.arange(48) % 4
    inputs = (np.eye(4)[labels] + 0.4 * draws.normal(size=(48, 4))).astype(np.float32)
    return from_arrays(inputs, inputs @ np.array([1.0, -2.0, 3.0, 0.5]) if goal == "regression" else labels, goal)


def poisoned(batch: Batch) -> Batch:
    """Every target is another one."""
    return Batch(batch.inputs, -batch.targets if batch.targets.is_floating_point() else (batch.targets + 1) % 4)


@pytest.mark.parametrize(
    ("method", "goal", "options"),
    [
        ("fedavg", "classification", {"lr": 0.5}),
        ("fedper", "classification", {"lr": 0.5, "budget": {"steps": 2}}),
        ("finetune", "classification", {"lr": 0.3}),
        ("fedavg", "regression", {"lr": 0.1}),
    ],
)
def test_poisoned_test_labels_change_nothing_but_the_metrics_on_test_data(method, goal, options, monkeypatch):
    def load(poison: bool) -> DataSet:
        train, test = examples(1, goal), examples(2, goal)
        return DataSet(name="split", examples=train, test=poisoned(test) if poison else test, goal=goal_named(goal))

    monkeypatch.setitem(SOURCES, "split", Source(name="split", about="for tests", files=(), load=load))
    rule = {"partition": "iid"} if goal == "regression" else {"classes_per_client": 2}
    tables = [{"source": {"name": "split", "poison": poison}, "test_rule": "same", **rule} for poison in (False, True)]
    settings = {"rounds": 8, "evaluation": {"every": 1}, "method_options": options}
    honest, other = (ran(method, data=data, **settings) for data in tables)

    assert honest.selected_by == f"{honest.headline}/validation/{honest.metric}"
    assert_alike_but_for_test(honest, other)
