"""Cohorts: who is drawn, how often, and that draws depend on seed and round alone."""

from collections import Counter
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig
from plures.participation import SAMPLERS, all_clients, as_sampler, binomial, random_size, round_robin, uniform

EXAMPLES = {
    "all": all_clients(),
    "uniform": uniform(3),
    "binomial": binomial(0.3),
    "random_size": random_size(1, 5),
    "round_robin": round_robin(3),
}
"""Each draws three of ten on average, but `all`."""

samplers = pytest.mark.parametrize("name", sorted(EXAMPLES))
any_seed, any_round = st.integers(0, 2**62), st.integers(1, 10_000)


def test_every_registered_sampler_has_an_example_here():
    assert EXAMPLES.keys() == SAMPLERS.keys()


@samplers
@given(num_clients=st.integers(5, 200), round=any_round, seed=any_seed)
def test_clients_are_distinct_ascending_and_in_range(name, num_clients, round, seed):
    clients, inclusion, _ = EXAMPLES[name].draw(num_clients, round, seed)
    assert list(clients) == sorted(set(clients))
    assert all(0 <= client < num_clients for client in clients)
    assert all(type(client) is int for client in clients)
    assert 0 < inclusion <= 1


@given(num_clients=st.integers(1, 100), round=any_round, seed=any_seed, data=st.data())
def test_a_uniform_cohort_has_its_size(num_clients, round, seed, data):
    size = data.draw(st.integers(1, num_clients))
    clients, inclusion, _ = uniform(size).draw(num_clients, round, seed)
    assert len(clients) == size
    assert inclusion == size / num_clients


@pytest.mark.parametrize(
    ("share", "num_clients", "size"), [(0.2, 100, 20), (0.25, 10, 2), (0.01, 10, 1), (1.0, 7, 7), (0.999, 7, 6)]
)
def test_a_share_is_cut_to_whole_clients_but_never_to_none(share, num_clients, size):
    clients, inclusion, _ = uniform(share).draw(num_clients, 1, 0)
    assert len(clients) == size
    assert inclusion == size / num_clients


def test_all_clients_are_all_clients():
    assert all_clients().draw(4, 9, 0) == ((0, 1, 2, 3), 1.0, None)
    assert binomial(1.0).draw(4, 9, 0) == ((0, 1, 2, 3), 1.0, None)
    assert uniform(4).draw(4, 9, 0) == ((0, 1, 2, 3), 1.0, None)


@samplers
def test_clients_are_drawn_as_often_as_the_inclusion_says(name):
    # A client's count over R rounds has the deviation sqrt(R p (1 - p)), or less; five of them are allowed.
    num_rounds, num_clients = 4000, 10
    counts: Counter[int] = Counter()
    for round in range(1, num_rounds + 1):
        clients, inclusion, _ = EXAMPLES[name].draw(num_clients, round, 1)
        counts.update(clients)
    allowed = 5 * sqrt(num_rounds * inclusion * (1 - inclusion))
    assert inclusion == (1.0 if name == "all" else pytest.approx(0.3, rel=1e-12))
    assert all(abs(counts[client] - num_rounds * inclusion) <= allowed for client in range(num_clients))


def test_all_subsets_are_equally_likely():
    # Ten pairs of five clients, 5000 draws: 500 each, deviation sqrt(5000 * 0.1 * 0.9) = 21; five of them allowed.
    counts = Counter(uniform(2).draw(5, round, 3).clients for round in range(1, 5001))
    assert len(counts) == 10
    assert all(abs(count - 500) < 107 for count in counts.values())


def test_random_sizes_are_equally_likely_and_inclusion_is_by_their_mean():
    # Sizes 2..5: 1000 each of 4000, deviation sqrt(4000 * 1/4 * 3/4) = 27.4; mean 3.5 of 10.
    drawn = [random_size(2, 5).draw(10, round, 0) for round in range(1, 4001)]
    counts = Counter(len(cohort.clients) for cohort in drawn)
    assert sorted(counts) == [2, 3, 4, 5]
    assert all(abs(count - 1000) < 137 for count in counts.values())
    assert {cohort.inclusion for cohort in drawn} == {0.35}


def test_binomial_sizes_vary_and_may_be_zero():
    # Nobody of five at rate 0.1 with probability 0.9^5 = 0.59; the inclusion stays.
    drawn = [binomial(0.1).draw(5, round, 0) for round in range(1, 201)]
    assert {0, 1, 2} <= {len(cohort.clients) for cohort in drawn}
    assert {cohort.inclusion for cohort in drawn} == {0.1}


def test_round_robin_takes_everybody_in_turn_and_wraps():
    # Threes of seven: 012 345 601 234 560 123 456, and again.
    drawn = [round_robin(3).draw(7, round, seed=round).clients for round in range(1, 9)]
    assert drawn[:4] == [(0, 1, 2), (3, 4, 5), (0, 1, 6), (2, 3, 4)]
    assert Counter(client for clients in drawn[:7] for client in clients) == dict.fromkeys(range(7), 3)
    assert drawn[7] == drawn[0]


@samplers
def test_a_draw_depends_on_seed_and_round_and_nothing_before(name):
    sampler = EXAMPLES[name]
    expected = [sampler.draw(50, round, 7) for round in range(1, 21)]
    assert [sampler.draw(50, round, 7) for round in range(20, 0, -1)] == expected[::-1]


@pytest.mark.parametrize("name", ["binomial", "random_size", "uniform"])
def test_rounds_and_seeds_differ(name):
    drawn = {EXAMPLES[name].draw(10_000, round, seed).clients for round in (1, 2, 3) for seed in (0, 1, 2)}
    assert len(drawn) == 9


def test_a_cohort_of_a_million_million_clients_takes_no_memory():
    # Anything that is made for each client would need terabytes.
    clients, inclusion, _ = uniform(50).draw(10**12, 1, 0)
    assert len(clients) == 50
    assert max(clients) > 10**11
    assert inclusion == 5e-11


def test_as_sampler_reads_all_numbers_and_shares():
    sampler = binomial(0.5)
    assert as_sampler("all") == all_clients()
    assert as_sampler(1) == uniform(1)
    assert as_sampler(1).draw(5, 1, 0).inclusion == 0.2
    assert as_sampler(1.0).draw(5, 1, 0).inclusion == 1.0
    assert as_sampler(sampler) is sampler


def test_samplers_are_values():
    assert hash(uniform(3)) == hash(uniform(3))
    assert repr(random_size(1, 5)) == "RandomSize(low=1, high=5)"


@pytest.mark.parametrize("sampler", [uniform(6), random_size(1, 6), round_robin(6)])
def test_a_cohort_larger_than_the_population_is_refused(sampler):
    sampler.check(6)
    with pytest.raises(InvalidConfig, match="a cohort of 6 clients cannot be drawn from 5"):
        sampler.check(5)


@samplers
def test_a_population_of_nobody_is_refused(name):
    with pytest.raises(InvalidConfig):
        EXAMPLES[name].check(0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: uniform(0),
        lambda: uniform(-2),
        lambda: uniform(0.0),
        lambda: uniform(1.5),
        lambda: uniform(True),
        lambda: uniform(float("nan")),
        lambda: binomial(0.0),
        lambda: binomial(1.1),
        lambda: random_size(3, 2),
        lambda: random_size(0, 0),
        lambda: random_size(-1, 2),
        lambda: round_robin(0),
        lambda: as_sampler("most"),
        lambda: as_sampler(None),
    ],
)
def test_impossible_options_are_refused(make):
    with pytest.raises(InvalidConfig):
        make()
