"""The crossed bootstrap: against scipy, by simulation, and where it must be a point."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from plures.report.bootstrap import crossed_interval, mean_difference, multinomial_counts, pooled


def draws(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_one_seed_and_equal_weights_is_the_usual_percentile_bootstrap_of_clients():
    """An end of 10,000 resamples has a standard error of sqrt(0.025 * 0.975 / 10,000) / density; for a normal of
    standard deviation s the density at the 2.5 % point is 0.0584 / s, so that it is 0.027 s. Two ends differ by less
    than 4 sqrt(2) of that, 0.15 s.
    """
    own, reference = draws(0).uniform(size=(2, 1, 60))
    found = crossed_interval(own, reference, np.ones(60))
    expected = stats.bootstrap(((own - reference)[0],), np.mean, n_resamples=10_000, method="percentile", rng=draws(1))
    interval, error = expected.confidence_interval, expected.standard_error

    assert abs(found.low - interval.low) < 0.15 * error
    assert abs(found.high - interval.high) < 0.15 * error
    assert found.resamples == 10_000
    assert found.level == 0.95


def test_the_same_records_have_the_same_interval():
    own, reference = draws(2).uniform(size=(2, 3, 20))

    assert crossed_interval(own, reference, np.ones(20)) == crossed_interval(own, reference, np.ones(20))


def test_nothing_that_varies_gives_a_point():
    own, reference, examples = np.full((3, 7), 0.7), np.full((3, 7), 0.6), np.array([1.0, 2, 3, 4, 5, 6, 7])

    found = crossed_interval(own, reference, examples)

    assert found.low == found.high == mean_difference(own, reference, examples)


@pytest.mark.parametrize("power", [1, 2])
def test_a_run_against_itself_differs_by_nothing(power):
    own = draws(3).uniform(size=(3, 7))

    found = crossed_interval(own, own, np.arange(1.0, 8.0), power=power)

    assert (found.low, found.high) == (0.0, 0.0)


def test_with_one_client_only_seeds_are_drawn():
    """Of the differences 0 and 1 the mean of a resample is 0, 0.5 or 1, each end with probability 1/4."""
    found = crossed_interval(np.array([[0.0], [1.0]]), np.zeros((2, 1)), np.ones(1))

    assert (found.low, found.high) == (0.0, 1.0)


def test_clients_count_by_their_examples():
    """Two clients with differences 1 and 0 and 3 to 1 examples: 3/4; a resample is 0, 3/4 or 1."""
    own, reference, examples = np.array([[1.0, 0.0]]), np.zeros((1, 2)), np.array([30.0, 10.0])

    found = crossed_interval(own, reference, examples)

    assert mean_difference(own, reference, examples) == 0.75
    assert (found.low, found.high) == (0.0, 1.0)


def test_errors_are_pooled_as_squares():
    """RMSEs of 1 and 7 over as many examples pool to sqrt((1 + 49) / 2) = 5, not to 4."""
    values = np.array([[1.0, 7.0]])

    assert pooled(values, np.array([4.0, 4.0]), 2) == pytest.approx([5.0])
    assert mean_difference(values, np.zeros((1, 2)), np.array([4.0, 4.0]), 2) == pytest.approx(5.0)


def test_counts_are_of_as_many_draws_as_there_are_clients_and_multinomial():
    """A count of n draws among n has mean 1 and variance 1 - 1/n; over 4,000 rows of 5 the standard error of the mean
    of each column is sqrt(0.8 / 4,000) = 0.014, and that of the variance about sqrt(2 / 4,000) * 1.3 = 0.03.
    """
    counts = multinomial_counts(draws(4), 4000, 5)

    assert (counts.sum(axis=1) == 5).all()
    assert counts.mean(axis=0) == pytest.approx(1.0, abs=0.06)
    assert counts.var(axis=0) == pytest.approx(0.8, abs=0.12)


def test_large_populations_have_fewer_resamples_but_enough():
    own = np.zeros((1, 200_000))

    assert crossed_interval(own, own, np.ones(200_000), resamples=2000).resamples == 1000


def coverage(num_seeds: int, seed_std: float) -> float:
    """How many of 300 intervals hold a difference of 0.02, to which seeds, 40 clients and noise add."""
    chance, repetitions, hits = draws(5), 300, 0
    for _ in range(repetitions):
        of_seeds, of_clients = chance.normal(0, seed_std, (num_seeds, 1)), chance.normal(0, 0.1, (1, 40))
        own = 0.52 + of_seeds + of_clients + chance.normal(0, 0.1, (num_seeds, 40))
        found = crossed_interval(own, np.full((num_seeds, 40), 0.5), np.ones(40), resamples=500)
        hits += found.low <= 0.02 <= found.high
    return hits / repetitions


def test_about_95_of_100_intervals_hold_the_true_difference():
    """The bootstrap's variance is near the true one: that of seeds is small by 1/20, that of clients by 1/40, and the
    noise is counted about three times (Owen 2007). The true variance is 0.02^2/20 + 0.1^2/40 + 0.1^2/800 = 2.83e-4, the
    bootstrap's expected one 0.95 * 2e-5 + 0.975 * 2.5e-4 + 3 * 1.25e-5 = 3.00e-4: coverage of about 95.7 %, less about
    one for percentiles of 40 clients. Of 300 repetitions the standard error is 1.3 %; four of them on either side, and
    the bias, leave 89 % to 99.5 %.
    """
    assert 0.89 <= coverage(20, 0.02) <= 0.995


def test_three_seeds_that_matter_make_intervals_too_short():
    """The variance of three seeds is small by 1/3: 2/3 * 0.05^2/3 + 0.975 * 0.1^2/40 + 2 * 0.1^2/120 (two thirds of
    three times) = 9.7e-4, the true one 0.05^2/3 + 0.1^2/40 + 0.1^2/120 = 1.17e-3; a normal of that ratio covers 92.6 %,
    and resamples of three seeds vary less far than a normal: 1,000 repetitions gave 89 %. Three standard errors of
    1.8 % around it.
    """
    assert 0.835 <= coverage(3, 0.05) <= 0.945


def test_seeds_widen_the_interval_where_they_matter():
    """Each client gains 0.1 under one seed and loses 0.1 under the other: clients alone would give a point."""
    own = np.array([[0.6] * 30, [0.4] * 30])

    found = crossed_interval(own, np.full((2, 30), 0.5), np.ones(30))

    assert (found.low, found.high) == pytest.approx((-0.1, 0.1))


def test_without_pairs_the_interval_would_be_wider():
    """Clients differ by 0.2, differences by 0.01: unpaired, the standard error is sqrt(2) * 0.2 / sqrt(50), not 0.01 /
    sqrt(50), and the interval 28 times as wide; ten times is asked for.
    """
    chance = draws(6)
    reference = chance.normal(0.6, 0.2, (1, 50))
    own = reference + chance.normal(0.05, 0.01, (1, 50))
    found = crossed_interval(own, reference, np.ones(50))
    places = chance.integers(50, size=(2, 2000, 50))
    unpaired = own[0][places[0]].mean(axis=1) - reference[0][places[1]].mean(axis=1)
    low, high = np.percentile(unpaired, [2.5, 97.5])

    assert high - low > 10 * (found.high - found.low)
    assert found.low > 0 > low
