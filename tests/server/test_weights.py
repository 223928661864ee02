"""Weights: what they sum to, and which of them are unbiased, by going through all cohorts."""

from itertools import combinations
from math import comb, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig
from plures.core.types import Facts
from plures.server import (
    WEIGHTS,
    batches,
    global_ht,
    ht_share,
    inverse_inclusion,
    round_ht,
    round_share,
    samples,
    uniform,
)

EXAMPLES = [3, 5, 2, 10, 4]
VALUES = [1.0, -2.0, 4.0, 0.5, 3.0]
OBJECTIVE = sum(size * value for size, value in zip(EXAMPLES, VALUES, strict=True)) / sum(EXAMPLES)
"""(3 - 10 + 8 + 5 + 12) / 24 = 0.75"""

cohorts = st.lists(st.integers(1, 1000), min_size=1, max_size=12)


def facts_of(cohort, examples=EXAMPLES, inclusion=1.0):
    return [
        Facts(
            examples=examples[client],
            cohort_examples=sum(examples[other] for other in cohort),
            all_examples=sum(examples),
            cohort_clients=len(cohort),
            all_clients=len(examples),
            inclusion=inclusion,
        )
        for client in cohort
    ]


def factors(weight, facts):
    """What each upload of a cohort is multiplied by."""
    total = 1.0 if weight.per is None else sum(weight.per(fact) for fact in facts)
    return [weight.share(fact) / total for fact in facts]


def expectation(weight, probabilities, inclusion, examples=EXAMPLES):
    """Mean over all cohorts of the weighted sum of VALUES."""
    return sum(
        probability
        * sum(
            factor * VALUES[client]
            for factor, client in zip(factors(weight, facts_of(cohort, examples, inclusion)), cohort, strict=True)
        )
        for cohort, probability in probabilities.items()
    )


def fixed_size(size):
    return {cohort: 1 / comb(len(VALUES), size) for cohort in combinations(range(len(VALUES)), size)}


def by_coin(rate):
    clients = range(len(VALUES))
    subsets = [cohort for size in range(len(VALUES) + 1) for cohort in combinations(clients, size)]
    return {cohort: prod(rate if client in cohort else 1 - rate for client in clients) for cohort in subsets}


def random_sizes(low, high):
    return {
        cohort: probability / (high - low + 1)
        for size in range(low, high + 1)
        for cohort, probability in fixed_size(size).items()
    }


@given(cohorts)
def test_weights_of_a_cohort_sum_to_one(examples):
    facts = facts_of(range(len(examples)), examples, inclusion=0.3)
    for weight in (samples, uniform, batches(32)):
        assert sum(factors(weight, facts)) == pytest.approx(1.0, rel=1e-12)


def test_samples_are_shares_of_the_cohort():
    # Clients 0, 1, 2 have 3, 5, 2 examples of 10.
    assert factors(samples, facts_of([0, 1, 2])) == pytest.approx([0.3, 0.5, 0.2], rel=1e-14)


def test_uniform_is_one_over_the_cohort():
    assert factors(uniform, facts_of([0, 1, 2, 3])) == [0.25] * 4


def test_batches_count_the_last_small_batch():
    # Batches of 4: 3 -> 1, 5 -> 2, 2 -> 1, 10 -> 3, 4 -> 1; of 8 in all.
    assert factors(batches(4), facts_of(range(5))) == [1 / 8, 2 / 8, 1 / 8, 3 / 8, 1 / 8]


def test_global_ht_is_the_share_of_everything_over_the_probability():
    # 3/24 and 10/24, each drawn with probability 2/5.
    expected = [3 / 24 * 5 / 2, 10 / 24 * 5 / 2]
    assert factors(global_ht, facts_of([0, 3], inclusion=2 / 5)) == pytest.approx(expected, rel=1e-14)


def test_round_ht_is_the_share_of_the_cohort_over_the_probability():
    # 3/13 and 10/13, each drawn with probability 2/5.
    expected = [3 / 13 * 5 / 2, 10 / 13 * 5 / 2]
    facts = facts_of([0, 3], inclusion=2 / 5)
    assert factors(round_ht, facts) == pytest.approx(expected, rel=1e-14)
    assert [round_share(fact) for fact in facts] == pytest.approx(expected, rel=1e-14)


def test_scales_by_hand():
    fact, *_ = facts_of([0, 3], inclusion=0.4)
    assert ht_share(fact) == pytest.approx(3 / 24 / 0.4, rel=1e-14)
    assert inverse_inclusion(fact) == 2.5
    assert round_share(fact) == pytest.approx(3 / 13 / 0.4, rel=1e-14)


def test_with_everybody_all_weights_by_examples_agree():
    facts = facts_of(range(5))
    shares = [size / 24 for size in EXAMPLES]
    for weight in (samples, global_ht, round_ht):
        assert factors(weight, facts) == pytest.approx(shares, rel=1e-14)


@pytest.mark.parametrize(
    ("probabilities", "inclusion"),
    [
        *[(fixed_size(size), size / 5) for size in range(1, 6)],
        *[(by_coin(rate), rate) for rate in (0.1, 0.5, 0.8, 1.0)],
        (random_sizes(1, 4), 2.5 / 5),
        (random_sizes(0, 3), 1.5 / 5),
    ],
)
def test_global_ht_is_unbiased_over_all_cohorts(probabilities, inclusion):
    assert sum(probabilities.values()) == pytest.approx(1.0, rel=1e-12)
    assert expectation(global_ht, probabilities, inclusion) == pytest.approx(OBJECTIVE, rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_samples_are_biased_if_clients_differ(size):
    assert abs(expectation(samples, fixed_size(size), size / 5) - OBJECTIVE) > 0.01


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_round_ht_is_too_large_by_clients_over_cohort_if_clients_are_equal(size):
    # Equal sizes: every q is 1 / size, so the mean over cohorts is (5 / size) * mean(VALUES); mean(VALUES) = 1.3.
    equal = [7] * 5
    assert expectation(round_ht, fixed_size(size), size / 5, equal) == pytest.approx(5 / size * 1.3, rel=1e-12)


def test_weights_are_known_by_their_names():
    assert WEIGHTS["batches"](8) == batches(8)
    assert {name: weight.name for name, weight in WEIGHTS.items() if name != "batches"} == {
        name: name for name in ("samples", "uniform", "global_ht", "round_ht")
    }


@pytest.mark.parametrize("batch", [0, -1, 2.5])
def test_batches_need_a_batch_size(batch):
    with pytest.raises(InvalidConfig, match="batch"):
        batches(batch)
