"""More clients called than wanted: who they are, how many, how often, and what cannot be asked for."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig
from plures.participation import binomial, over_select, random_size, round_robin, uniform
from plures.participation.over_selection import beside

any_seed, any_round = st.integers(0, 2**62), st.integers(1, 10_000)

BASES = {
    "uniform": uniform(4),
    "share": uniform(0.3),
    "binomial": binomial(0.4),
    "random": random_size(0, 6),
    "turns": round_robin(3),
}


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
@given(num_clients=st.integers(6, 60), round=any_round, seed=any_seed, factor=st.floats(1.0, 5.0))
def test_the_cohort_of_the_sampler_is_called_and_others_beside_it(base, num_clients, round, seed, factor):
    plain, cohort = base.draw(num_clients, round, seed), over_select(base, factor).draw(num_clients, round, seed)
    assert set(plain.clients) <= set(cohort.clients)
    assert list(cohort.clients) == sorted(set(cohort.clients))
    assert all(0 <= client < num_clients for client in cohort.clients)
    assert cohort.wanted == len(plain.clients)
    most = factor * len(plain.clients)
    assert min(most, num_clients) - 1e-6 <= len(cohort.clients) < most + 1
    assert cohort.inclusion == plain.inclusion  # called / wanted as likely to be called, wanted / called to be taken


@pytest.mark.parametrize(("size", "factor", "called"), [(10, 1.1, 11), (10, 1.0, 10), (7, 1.3, 10), (20, 9.0, 50)])
def test_as_many_are_called_as_the_factor_says_rounded_up_and_no_more_than_there_are(size, factor, called):
    assert len(over_select(uniform(size), factor).draw(50, 1, 0).clients) == called


def test_everybody_else_is_called_as_often():
    # Two of ten, and one of the other eight: each client 3000 times of 10,000, deviation 46; five of them are allowed.
    counts = Counter(
        client for round in range(1, 10_001) for client in over_select(uniform(2), 1.5).draw(10, round, 1).clients
    )
    assert all(abs(counts[client] - 3000) < 5 * 46 for client in range(10))


def test_who_is_called_depends_on_seed_and_round_alone():
    sampler = over_select(uniform(5), 2.0)
    assert sampler.draw(1000, 3, 7) == sampler.draw(1000, 3, 7)
    assert len({sampler.draw(1000, round, seed).clients for round in (1, 2) for seed in (0, 1)}) == 4


def test_a_few_of_very_many_take_no_time():
    assert len(over_select(uniform(50), 1.5).draw(10**12, 1, 0).clients) == 75


@given(chosen=st.sets(st.integers(0, 19), max_size=19), data=st.data())
def test_places_beside_a_cohort_are_those_of_the_others_in_order(chosen, data):
    others = [client for client in range(20) if client not in chosen]
    places = data.draw(st.lists(st.integers(0, len(others) - 1), max_size=5))
    assert beside(sorted(chosen), places) == [others[place] for place in places]


@pytest.mark.parametrize("factor", [0.9, float("nan"), float("inf"), "2", True])
def test_a_factor_is_a_number_of_one_or_more(factor):
    with pytest.raises(InvalidConfig, match="over_select must be a finite number, 1 or more"):
        over_select(uniform(2), factor)


def test_where_everybody_is_called_anyway_nobody_can_be_called_beside():
    for everybody in (uniform(1.0), uniform(5), round_robin(5), binomial(1.0)):
        with pytest.raises(
            InvalidConfig, match=r"over_select = 1.5, but every cohort has all 5 clients.*remove over_select"
        ):
            over_select(everybody, 1.5).check(5)
        over_select(everybody, 1.0).check(5)
    over_select(uniform(4), 1.5).check(5)
    with pytest.raises(InvalidConfig, match="cannot be drawn"):
        over_select(uniform(6), 1.5).check(5)
