"""Numbers that stand for many clients, each worked out by hand."""

from __future__ import annotations

import math

import pytest

from plures.evaluate import ClientScore, Comparison, Evaluation, compare
from plures.evaluate.scores import summarise


def score(client: int, accuracy: float, *, examples: int = 10, loss: float = 0.0) -> ClientScore:
    return ClientScore(client=client, examples=examples, values={"accuracy": accuracy, "loss": loss})


def test_summary_of_three_clients_is_as_worked_out_by_hand():
    found = summarise([0.2, 0.8, 0.5], [10, 30, 60])

    assert found.weighted == pytest.approx(0.56)  # (2 + 24 + 30) / 100
    assert found.mean == pytest.approx(0.5)
    assert found.std == pytest.approx((0.18 / 3) ** 0.5)  # squares 0.09 + 0.09 + 0, divided by 3, not by 2
    assert found.worst == 0.2
    assert found.bottom_decile == 0.2  # element floor(3 / 10) = 0


@pytest.mark.parametrize(("clients", "place"), [(1, 0), (9, 0), (10, 1), (19, 1), (20, 2), (100, 10)])
def test_bottom_decile_is_element_floor_of_a_tenth_counted_from_the_worst(clients, place):
    accuracies = [number / 1000 for number in reversed(range(clients))]  # the worst is 0, the next 0.001, ...

    assert summarise(accuracies, [1] * clients).bottom_decile == place / 1000


def test_worst_and_bottom_decile_of_a_loss_are_counted_from_the_largest():
    losses = [float(number) for number in range(20)]

    found = summarise(losses, [1] * 20, worst_is="largest")

    assert found.worst == 19.0
    assert found.bottom_decile == 17.0  # element 2 of 19, 18, 17, ...


def test_weighted_accuracy_is_the_accuracy_of_all_examples_pooled():
    right, sizes = [3, 0, 7, 11], [4, 9, 7, 22]

    found = summarise([a / b for a, b in zip(right, sizes, strict=True)], sizes)

    assert found.weighted == pytest.approx(21 / 42)


def test_equal_clients_have_no_spread():
    assert summarise([0.1] * 7, [3] * 7).std == 0.0


def test_names_of_metrics_say_model_split_and_metric():
    evaluation = Evaluation(model="personal", split="test", scores=(score(0, 0.5),))

    assert list(evaluation.summaries()) == ["personal/test/accuracy", "personal/test/loss"]


def test_metrics_of_the_cohort_alone_are_called_sampled():
    evaluation = Evaluation(model="post_local", split="validation", scores=(score(0, 0.5),), sampled=True)

    assert list(evaluation.summaries()) == [
        "sampled/post_local/validation/accuracy",
        "sampled/post_local/validation/loss",
    ]


def test_worst_accuracy_is_the_smallest_and_worst_loss_the_largest():
    evaluation = Evaluation(model="global", split="test", scores=(score(0, 0.9, loss=0.3), score(1, 0.4, loss=2.0)))

    found = evaluation.summaries()

    assert found["global/test/accuracy"].worst == 0.4
    assert found["global/test/loss"].worst == 2.0


def test_metrics_weigh_clients_by_their_own_examples():
    scores = (score(0, 1.0, examples=1, loss=4.0), score(1, 0.0, examples=3, loss=0.0))

    found = Evaluation(model="global", split="test", scores=scores).summaries()

    assert found["global/test/accuracy"].weighted == 0.25
    assert found["global/test/loss"].weighted == 1.0


def test_no_clients_give_no_metrics():
    assert Evaluation(model="global", split="validation", scores=()).summaries() == {}


def test_clients_are_counted_as_helped_hurt_or_the_same():
    before = [score(0, 0.5), score(1, 0.5), score(2, 0.5), score(3, 0.5)]
    after = [score(0, 0.6), score(1, 0.4), score(2, 0.5), score(3, 0.9)]

    assert compare(after, before) == Comparison(helped=2, hurt=1, same=1)


def test_comparison_goes_by_client_and_not_by_place_in_the_list():
    before = [score(7, 0.1), score(3, 0.9)]
    after = [score(3, 0.8), score(7, 0.2)]

    assert compare(after, before) == Comparison(helped=1, hurt=1, same=0)


def test_clients_that_only_one_side_scored_are_not_counted():
    assert compare([score(0, 0.9), score(1, 0.9)], [score(1, 0.1), score(2, 0.1)]) == Comparison(
        helped=1, hurt=0, same=0
    )


def test_errors_that_are_infinite_are_counted():
    """Infinite before and after is the same; from infinite to finite is a help."""
    before, after = [math.inf, math.inf, 1.0], [math.inf, 2.0, math.inf]
    runs = [
        [ClientScore(client=i, examples=1, values={"rmse": value}) for i, value in enumerate(values)]
        for values in (after, before)
    ]
    assert compare(*runs, metric="rmse") == Comparison(helped=1, hurt=1, same=1)


def test_an_rmse_too_large_to_be_squared_is_pooled_as_infinite():
    assert summarise([1e200, 1.0], [1, 1], worst_is="largest", power=2).weighted == math.inf
