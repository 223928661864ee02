"""Differences client by client, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from plures.evaluate.scores import SMALLER_IS_BETTER as AS_EVALUATED
from plures.report.client_scores import ClientScores
from plures.report.pairing import pair
from plures.report.scales import SMALLER_IS_BETTER, digits_of

INF, NAN = float("inf"), float("nan")


def scores(values, *, clients=None, examples=None, metric="accuracy") -> ClientScores:
    numbers = np.arange(len(values)) if clients is None else np.array(clients)
    sizes = np.full(len(values), 10) if examples is None else np.array(examples)
    names = [f"c{number}" for number in numbers]
    return ClientScores(clients=numbers, names=names, examples=sizes, values={metric: np.array(values, dtype=float)})


def test_clients_are_helped_hurt_or_the_same_by_their_mean_over_seeds():
    """Means: +0.1, -0.1, 0 (up and down), 0."""
    own = {0: scores([0.7, 0.5, 0.7, 0.5]), 1: scores([0.5, 0.3, 0.4, 0.5])}
    reference = {0: scores([0.5, 0.5, 0.6, 0.5]), 1: scores([0.5, 0.5, 0.5, 0.5])}

    found = pair(own, reference, "accuracy").deltas()

    assert (found.clients, found.helped, found.hurt, found.same, found.sign_changes) == (4, 1, 1, 2, 1)
    assert (found.min, found.max) == pytest.approx((-0.1, 0.1))
    assert found.mean == pytest.approx(0, abs=1e-12)


def test_thirds_that_were_rounded_in_the_records_still_cancel():
    """1/3 - 0 and 1/3 - 2/3 are written 0.333333 and -0.333334, whose mean is not 0."""
    own, reference = {0: scores([0.333333]), 1: scores([0.333333])}, {0: scores([0.0]), 1: scores([0.666667])}

    assert pair(own, reference, "accuracy").deltas().same == 1


def test_the_smallest_difference_that_is_written_counts_under_one_seed():
    assert pair({0: scores([0.500001])}, {0: scores([0.5])}, "accuracy").deltas().helped == 1


@pytest.mark.parametrize(("metric", "helped", "hurt"), [("accuracy", 2, 1), ("rmse", 1, 2), ("loss", 1, 2)])
def test_a_smaller_error_helps(metric, helped, hurt):
    found = pair(
        {0: scores([0.3, 0.3, 0.1], metric=metric)}, {0: scores([0.2, 0.2, 0.2], metric=metric)}, metric
    ).deltas()

    assert (found.helped, found.hurt) == (helped, hurt)


def test_reports_and_evaluation_agree_on_what_is_an_error():
    assert SMALLER_IS_BETTER == AS_EVALUATED


def test_quartiles_are_of_clients():
    found = pair({0: scores([0.1, 0.2, 0.3, 0.4, 0.5])}, {0: scores([0.0] * 5)}, "accuracy").deltas()

    quartiles = (found.min, found.lower_quartile, found.median, found.upper_quartile, found.max, found.mean)
    assert quartiles == pytest.approx((0.1, 0.2, 0.3, 0.4, 0.5, 0.3))


def test_only_seeds_and_clients_that_both_have_are_paired():
    own = {0: scores([0.5, 0.9], clients=[1, 3]), 1: scores([0.5, 0.9], clients=[1, 3]), 7: scores([0.0])}
    reference = {0: scores([0.1, 0.4], clients=[0, 1]), 1: scores([0.2, 0.5, 0.5], clients=[0, 1, 3])}

    found = pair(own, reference, "accuracy")

    assert found.seeds == (0, 1)
    assert found.clients.tolist() == [1]
    assert found.left_out == 2
    assert found.seed_differences() == pytest.approx([0.1, 0.0])


def test_a_client_without_the_metric_or_without_examples_is_left_out():
    own = scores([0.5, NAN, 0.7], examples=[10, 10, 0])

    found = pair({0: own}, {0: scores([0.25, 0.5, 0.5])}, "accuracy")

    assert found.clients.tolist() == [0]
    assert found.left_out == 2
    assert found.difference() == 0.25


def test_the_difference_is_that_of_pooled_examples():
    """Gains of 0.3 with 10 examples and -0.1 with 30: (3 - 3) / 40 = 0."""
    sizes = [10, 30]
    found = pair({0: scores([0.8, 0.4], examples=sizes)}, {0: scores([0.5, 0.5], examples=sizes)}, "accuracy")

    assert found.difference() == pytest.approx(0, abs=1e-12)
    assert found.interval().low == pytest.approx(-0.1)
    assert found.interval().high == pytest.approx(0.3)


def test_without_a_common_seed_client_or_metric_there_is_no_pairing():
    assert pair({0: scores([0.5])}, {1: scores([0.5])}, "accuracy") is None
    assert pair({0: scores([0.5], clients=[0])}, {0: scores([0.5], clients=[1])}, "accuracy") is None
    assert pair({0: scores([0.5])}, {0: scores([0.5])}, "auc") is None


@pytest.mark.parametrize(
    ("metric", "largest", "value", "plain", "signed"),
    [
        ("accuracy", 0.5, 0.1234, "12.3", "+12.3"),
        ("accuracy", 0.5, -0.0001, "0.0", "0.0"),
        ("rmse", 2.688, 0.00512, "0.005", "+0.005"),
        ("rmse", 0.7885, -0.05866, "-0.0587", "-0.0587"),
        ("rmse", 123456.0, 98765.4, "98765", "+98765"),
        ("rmse", 1.5e-6, 1.23e-6, "1.2e-06", "+1.2e-06"),
        ("rmse", 4e9, -3e9, "-3.0e+09", "-3.0e+09"),
        ("rmse", 0.0, 0.0, "0.000", "0.000"),
        ("rmse", NAN, None, "-", "-"),
        ("rmse", float("inf"), float("inf"), "inf", "+inf"),
    ],
)
def test_numbers_of_a_column_have_the_decimals_of_its_largest(metric, largest, value, plain, signed):
    digits = digits_of(metric, [largest, None])

    assert (digits.plain(value), digits.signed(value)) == (plain, signed)


def test_a_client_whose_model_overflows_is_hurt_and_never_left_out():
    """Own minus reference: inf, -inf, inf - inf (the same), 1 - 2; of -inf, -1, 0, inf the median lies at -0.5."""
    own, reference = scores([INF, 1.0, INF, 1.0], metric="rmse"), scores([1.0, INF, INF, 2.0], metric="rmse")

    found = pair({0: own}, {0: reference}, "rmse")
    deltas = found.deltas()

    assert (deltas.clients, deltas.helped, deltas.hurt, deltas.same, deltas.left_out) == (4, 2, 1, 1, 0)
    assert (deltas.min, deltas.median, deltas.max) == (-INF, -0.5, INF)
    assert np.isnan(deltas.mean)
    assert np.isnan(found.difference())
    assert found.interval() is None


@pytest.mark.parametrize(("metric", "examples"), [("rmse", [10, 10]), ("loss", [10, 1000])])
def test_one_infinite_error_makes_the_difference_infinite_without_an_interval(metric, examples):
    found = pair(
        {0: scores([INF, 1.0], metric=metric, examples=examples)},
        {0: scores([1.0, 1.0], metric=metric, examples=examples)},
        metric,
    )

    assert (found.difference(), found.deltas().mean, found.interval()) == (INF, INF, None)


def test_under_several_seeds_an_infinite_error_is_no_rounding():
    """Infinite under one seed: hurt; under one seed on each side: as good as bad, and mixed."""
    own = {0: scores([INF, INF], metric="mae"), 1: scores([1.0, 1.0], metric="mae")}
    reference = {0: scores([1.0, 1.0], metric="mae"), 1: scores([1.0, INF], metric="mae")}

    found = pair(own, reference, "mae").deltas()

    assert (found.helped, found.hurt, found.same, found.sign_changes) == (0, 1, 1, 1)


def test_squares_that_overflow_have_no_interval_either():
    """An RMSE of 1e200 is finite, its square is not."""
    found = pair({0: scores([1e200, 1.0], metric="rmse")}, {0: scores([1.0, 1.0], metric="rmse")}, "rmse")

    assert (found.difference(), found.interval()) == (INF, None)
