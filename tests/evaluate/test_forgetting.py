"""Accuracy apart on classes that a client has trained on and on others."""

from __future__ import annotations

import math

import pytest
import torch

from plures import EvaluationPlan, run
from plures.core.types import Batch
from plures.data import federate
from plures.evaluate import ClientScore, Evaluation
from plures.evaluate.forgetting import forgetting
from plures.methods import fedavg, fedper
from tests.evaluate.helpers import CLASSES, INPUTS, Network, made

OUTPUT = torch.eye(4)[[0, 1, 2, 2, 0]]
"""Says the classes 0, 1, 2, 2, 0."""


def test_seen_and_unseen_classes_are_scored_apart():
    """Targets 0 1 2 3 3, trained on 0 and 2: of 0 and 2 both are right, of 1, 3 and 3 only the first."""
    found = forgetting(OUTPUT, torch.tensor([0, 1, 2, 3, 3]), torch.tensor([2, 0, 2]))
    assert found == {"seen_accuracy": 1.0, "unseen_accuracy": 1 / 3, "unseen_share": 3 / 5}


def test_where_there_are_none_of_a_kind_there_is_no_accuracy():
    found = forgetting(OUTPUT, torch.tensor([0, 1, 2, 2, 0]), torch.arange(4))
    assert found["seen_accuracy"] == 1.0
    assert found["unseen_share"] == 0.0
    assert math.isnan(found["unseen_accuracy"])


def test_over_clients_they_are_pooled_by_the_examples_they_are_of():
    """10 examples with 4 unseen at 1/2, and 20 with 1 unseen at 1: (4 / 2 + 1) / 5; seen (6 * 1 + 19 * 0) / 25."""
    few = {"seen_accuracy": 1.0, "unseen_accuracy": 0.5, "unseen_share": 0.4}
    many = {"seen_accuracy": 0.0, "unseen_accuracy": 1.0, "unseen_share": 0.05}
    scores = (ClientScore(client=0, examples=10, values=few), ClientScore(client=1, examples=20, values=many))
    found = Evaluation(model="personal", split="test", scores=scores).summaries()
    assert found["personal/test/unseen_accuracy"].weighted == pytest.approx(3 / 5)
    assert found["personal/test/seen_accuracy"].weighted == pytest.approx(6 / 25)
    assert found["personal/test/unseen_share"].weighted == pytest.approx((10 * 0.4 + 20 * 0.05) / 30)
    assert found["personal/test/unseen_accuracy"].mean == 0.75


@pytest.mark.parametrize("method", [fedavg(), fedper()], ids=["in groups", "one by one"])
def test_in_a_run_seen_and_unseen_make_up_the_accuracy(method):
    """accuracy = (1 - share) seen + share unseen, client by client, for the shared model and for own ones."""
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 30, INPUTS, generator=draws, dtype=torch.float64)
    labels = torch.randint(CLASSES, (3, 30), generator=draws)

    def split_of(client: int, low: int, high: int, classes: int) -> Batch:
        return Batch(inputs[client, low:high], labels[client, low:high] % classes)

    clients = federate(
        [(split_of(i, 0, 10, 2), split_of(i, 10, 20, 2), split_of(i, 20, 30, CLASSES)) for i in range(3)],
        num_classes=CLASSES,
    )
    plan = EvaluationPlan(metrics=("forgetting",))
    result = run(method, clients, made(Network), rounds=1, evaluation=plan)
    scores = result.scores(split="test")
    assert len(scores) == 3
    for score in scores:
        values = score.values
        data = clients.client(score.client)
        known, wanted = set(data.train.targets.tolist()), data.test.targets.tolist()
        assert values["unseen_share"] == pytest.approx(sum(label not in known for label in wanted) / len(wanted))
        parts = (
            (1 - values["unseen_share"]) * values["seen_accuracy"],
            values["unseen_share"] * values["unseen_accuracy"],
        )
        assert sum(parts) == pytest.approx(values["accuracy"])
    assert len({score.values["unseen_share"] for score in scores}) > 1
