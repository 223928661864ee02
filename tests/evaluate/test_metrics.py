"""Metrics beside accuracy and loss, against cases computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

import plures
from plures.core.goals import CLASSIFICATION, REGRESSION, next_token
from plures.core.types import Batch
from plures.evaluate.metrics import MORE_METRICS, auc, balanced_accuracy, calibration_error, macro_f1, r2, with_metrics
from plures.evaluate.scores import SMALLER_IS_BETTER, summarise

LOGITS = torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0], [0.0, 2.0, 1.0], [1.0, 0.0, 4.0], [2.0, 1.0, 0.0]])
TARGETS = torch.tensor([0, 1, 0, 2, 1])
"""Chosen are 0, 1, 1, 2, 0: right, right, wrong, right, wrong."""


def from_probabilities(*rows):
    return torch.tensor(rows, dtype=torch.float64).log()


def test_macro_f1_is_the_mean_of_each_class():
    """Class 0: precision 1/2, recall 1/2, F1 1/2; class 1 likewise; class 2: 1. Their mean is 2/3."""
    assert macro_f1(LOGITS, TARGETS) == pytest.approx(2 / 3, rel=1e-12)


def test_a_class_that_is_predicted_and_not_there_counts_in_macro_f1_and_not_in_balanced_accuracy():
    """Targets 0, 0, 1; chosen 0, 2, 1. F1: 2/3 of class 0, 1 of class 1, 0 of class 2. Recall: 1/2 and 1."""
    logits = from_probabilities((0.8, 0.1, 0.1), (0.1, 0.1, 0.8), (0.1, 0.8, 0.1))
    targets = torch.tensor([0, 0, 1])
    assert macro_f1(logits, targets) == pytest.approx((2 / 3 + 1 + 0) / 3, rel=1e-12)
    assert balanced_accuracy(logits, targets) == pytest.approx((1 / 2 + 1) / 2, rel=1e-12)


def test_balanced_accuracy_gives_a_rare_class_the_say_of_a_common_one():
    """Nine examples of class 0, all right, and one of class 1, wrong: accuracy 0.9, balanced 0.5."""
    logits = torch.tensor([[1.0, 0.0]] * 10)
    assert balanced_accuracy(logits, torch.tensor([0] * 9 + [1])) == pytest.approx(0.5, rel=1e-12)


def test_auc_is_the_share_of_pairs_in_the_right_order():
    """Scores 0.1, 0.4, 0.35, 0.8 of classes 0, 0, 1, 1: of four pairs (0.1, 0.4) x (0.35, 0.8), three are right."""
    scores = (0.1, 0.4, 0.35, 0.8)
    logits = from_probabilities(*((1 - score, score) for score in scores))
    assert auc(logits, torch.tensor([0, 0, 1, 1])) == pytest.approx(3 / 4, rel=1e-12)


def test_auc_is_of_the_classes_that_a_client_has():
    """A third output that the client has no examples of does not change the order of the others."""
    two = from_probabilities((0.9, 0.1), (0.6, 0.4), (0.65, 0.35), (0.2, 0.8))
    three = torch.cat([two[:, :1], torch.full((4, 1), 5.0), two[:, 1:]], dim=1)
    targets = torch.tensor([0, 0, 1, 1])
    assert auc(three, 2 * targets) == auc(two, targets) == pytest.approx(3 / 4, rel=1e-12)


def test_auc_of_three_classes_is_the_mean_of_each_against_the_others():
    """Class 0 and 1: all pairs right, 1. Class 2, of scores 0.3 against 0.1, 0.1, 0.4: two of three."""
    logits = from_probabilities((0.8, 0.1, 0.1), (0.2, 0.7, 0.1), (0.1, 0.5, 0.4), (0.6, 0.1, 0.3))
    targets = torch.tensor([0, 1, 1, 2])
    # Class 0: 0.8 against 0.2, 0.1, 0.6. Class 1: 0.7 and 0.5 against 0.1 and 0.1.
    assert auc(logits, targets) == pytest.approx((1 + 1 + 2 / 3) / 3, rel=1e-12)


def test_of_one_class_there_is_no_auc():
    assert math.isnan(auc(LOGITS, torch.zeros(5, dtype=torch.int64)))


def test_calibration_error_is_the_gap_of_confidence_and_accuracy_by_bin():
    """Confidences 0.62 and 0.64 (bin 9 of 15: 0.6 to 0.667), one right; 0.9 twice (bin 13), both right.

    0.5 * |0.5 - 0.63| + 0.5 * |1 - 0.9| = 0.115
    """
    logits = from_probabilities((0.62, 0.38), (0.64, 0.36), (0.9, 0.1), (0.1, 0.9))
    assert calibration_error(logits, torch.tensor([0, 1, 0, 1])) == pytest.approx(0.115, rel=1e-9)


@pytest.mark.parametrize(("targets", "error"), [([0, 0], 0.2), ([1, 1], 0.8)])
def test_calibration_of_all_right_and_all_wrong(targets, error):
    logits = from_probabilities((0.8, 0.2), (0.8, 0.2))
    assert calibration_error(logits, torch.tensor(targets)) == pytest.approx(error, rel=1e-9)


def test_r2_is_one_minus_the_unexplained_share():
    """Targets 1, 2, 3 around 2: total 2. Predictions 1, 2, 4: squared errors 1. 1 - 1 / 2."""
    assert r2(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1.0, 2.0, 3.0])) == pytest.approx(0.5, rel=1e-6)
    assert math.isnan(r2(torch.tensor([[1.0]]), torch.tensor([1.0])))


# Over clients


def test_a_client_for_which_a_metric_does_not_exist_has_no_say():
    """0.5 of one example and 1.0 of three: (0.5 + 3) / 4 by examples."""
    found = summarise([0.5, math.nan, 1.0], [1, 100, 3])
    assert (found.weighted, found.mean, found.worst, found.bottom_decile) == (0.875, 0.75, 0.5, 0.5)
    assert all(math.isnan(value) for value in vars(summarise([math.nan], [1])).values())


def test_of_a_calibration_error_the_largest_is_the_worst():
    assert "calibration_error" in SMALLER_IS_BETTER
    assert not {"macro_f1", "balanced_accuracy", "auc", "r2"} & SMALLER_IS_BETTER


def test_more_metrics_leave_a_goal_and_what_it_is_judged_by_as_they_are():
    goal = with_metrics(CLASSIFICATION, ["auc", "macro_f1"])
    assert list(goal.metrics) == ["accuracy", "auc", "macro_f1"]
    assert (goal.judged_by, list(CLASSIFICATION.metrics)) == ("accuracy", ["accuracy"])
    assert list(with_metrics(REGRESSION, ["r2"]).metrics) == ["mae", "rmse", "r2"]
    assert MORE_METRICS.keys() == {CLASSIFICATION.name, REGRESSION.name, next_token().name}


def test_a_regression_has_its_own():
    draws = torch.Generator().manual_seed(0)

    def line(size):
        inputs = torch.randn(size, 1, generator=draws)
        return Batch(inputs, 3 * inputs[:, 0])

    federation = plures.data.federate([(line(30), line(20)) for _ in range(3)], goal="regression")
    plan = plures.EvaluationPlan(metrics=("r2",), every=20)
    result = plures.run("fedavg", federation, torch.nn.Linear(1, 1), rounds=20, evaluation=plan)
    assert result.metrics["global/test/r2"].worst > 0.9


def test_r2_does_not_exist_where_all_targets_are_equal():
    """Of no variance nothing can be explained, whatever the output."""
    assert math.isnan(r2(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0])))
    assert math.isnan(r2(torch.tensor([3.0, 3.0]), torch.tensor([3.0, 3.0])))


def test_r2_below_zero_is_worse_than_the_mean():
    """Targets 0 and 2, outputs 2 and 0: 1 - (4 + 4) / (1 + 1) = -3."""
    assert r2(torch.tensor([2.0, 0.0]), torch.tensor([0.0, 2.0])) == pytest.approx(-3)


def test_auc_of_tied_scores_counts_a_half_for_each_pair():
    """Class 1 has scores .5 and .8, class 0 has .5 and .2: pairs .5/.5 a half, .5/.2, .8/.5, .8/.2 one: 3.5 / 4."""
    likely = torch.tensor([0.5, 0.8, 0.5, 0.2], dtype=torch.float64)
    output = torch.log(torch.stack([1 - likely, likely], dim=1))
    assert auc(output, torch.tensor([1, 1, 0, 0])) == pytest.approx(3.5 / 4)
