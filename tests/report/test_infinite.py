"""Means, differences and percentiles of numbers of which some are infinite, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from plures.report.infinite import mean, mean_of_seeds, minus, percentiles, std

INF = float("inf")


def test_two_infinite_errors_differ_by_nothing():
    assert minus(np.array([INF, INF, 1.0]), np.array([INF, 1.0, INF])).tolist() == [0.0, INF, -INF]


def test_over_seeds_infinite_differences_outweigh_finite_ones_and_cancel_each_other():
    """Columns: one up; two up and one down; one up and one down beside 3, whose mean over three seeds is 1."""
    table = np.array([[INF, INF, INF], [1.0, INF, -INF], [2.0, -INF, 3.0]])

    assert mean_of_seeds(table).tolist() == [INF, INF, 1.0]


def test_a_mean_of_infinite_numbers_is_infinite_and_has_no_std():
    assert mean([1.0, INF]) == INF
    assert np.isnan(mean([-INF, INF]))
    assert np.isnan(std([1.0, INF]))
    assert (mean([1.0, 3.0]), std([1.0, 3.0])) == (2.0, 1.0)


def test_percentiles_of_finite_numbers_are_those_of_numpy():
    values = np.random.default_rng(0).normal(size=17)

    assert percentiles(values, [0, 2.5, 25, 50, 75, 100]) == pytest.approx(
        np.percentile(values, [0, 2.5, 25, 50, 75, 100])
    )


@pytest.mark.parametrize(
    ("values", "quartiles"),
    [
        ([1.0, 2.0, 3.0, 4.0, INF], [2.0, 3.0, 4.0]),
        ([1.0, 2.0, 3.0, INF], [1.75, 2.5, INF]),
        ([-INF, 1.0, 2.0, INF], [-INF, 1.5, INF]),
        ([INF, INF], [INF, INF, INF]),
    ],
)
def test_an_infinite_number_spoils_only_the_percentiles_that_it_borders(values, quartiles):
    """Of four, the quartiles lie at places 0.75, 1.5 and 2.25 counted from 0; of five at 1, 2 and 3."""
    assert percentiles(np.array(values), [25, 50, 75]) == quartiles
