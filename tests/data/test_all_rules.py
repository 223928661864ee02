"""What holds for every rule that deals by labels: every example once, at every client something, always the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import (
    Partitioner,
    by_class,
    by_quantity,
    dirichlet,
    dirichlet_by_client,
    feature_shift,
    iid,
    mixture,
    shards,
)
from plures.data.dealing import Indices, apportion

seeds = st.integers(0, 2**31)
sizes = st.integers(1, 12)
skews = st.sampled_from([1e-300, 1e-6, 0.3, 100.0])
simple = st.one_of(
    st.builds(iid, sizes),
    st.builds(dirichlet, sizes, skews, st.just(2)),
    st.builds(dirichlet_by_client, sizes, skews),
    st.builds(shards, sizes, st.integers(1, 3)),
    st.builds(by_quantity, sizes, st.sampled_from([0.0, 1.0, 10.0]), st.just(2)),
)
rules = st.one_of(
    simple,
    st.builds(feature_shift, simple),
    st.builds(
        lambda first, second, share: mixture([(share, first), (1 - share, second)]), simple, simple, st.just(0.5)
    ),
)


@st.composite
def labels_of(draw: st.DrawFn) -> Indices:
    """One to nine classes, not numbered in a row, of very unequal sizes; at least 100 examples."""
    classes = draw(st.lists(st.integers(0, 50), min_size=1, max_size=9, unique=True))
    extra = draw(st.lists(st.integers(1, 60), min_size=len(classes), max_size=len(classes)))
    labels = np.repeat(classes, [100 + extra[0], *extra[1:]])
    return np.random.default_rng(draw(seeds)).permutation(labels)


def same(left: list[Indices], right: list[Indices]) -> bool:
    return len(left) == len(right) and all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@settings(deadline=None)
@given(labels=labels_of(), rule=rules, seed=seeds)
def test_every_example_goes_to_exactly_one_client_and_every_client_gets_some(
    labels: Indices, rule: Partitioner, seed: int
) -> None:
    parts = rule.assign(labels, seed)

    assert len(parts) == rule.num_clients
    assert all(len(part) for part in parts)
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    assert same(parts, rule.assign(labels.copy(), seed))


@settings(deadline=None)
@given(labels=labels_of(), rule=rules, seed=seeds)
def test_every_test_example_goes_to_exactly_one_client(labels: Indices, rule: Partitioner, seed: int) -> None:
    test_labels = np.repeat(labels, 3)

    parts = rule.assign_test(labels, test_labels, seed)

    assert len(parts) == rule.num_clients
    assert sorted(np.concatenate(parts)) == list(range(len(test_labels)))
    assert same(parts, rule.assign_test(labels, test_labels, seed))


@settings(deadline=None)
@given(
    labels=labels_of(),
    seed=seeds,
    rule=st.one_of(st.builds(dirichlet_by_client, sizes, skews), st.builds(shards, sizes)),
)
def test_clients_are_tested_only_on_labels_that_they_train_on(labels: Indices, seed: int, rule: Partitioner) -> None:
    test_labels = np.repeat(labels, 2)
    trained, tested = rule.assign(labels, seed), rule.assign_test(labels, test_labels, seed)

    for own, test in zip(trained, tested, strict=True):
        assert set(test_labels[test]) <= set(labels[own])


MANY: list[Any] = [
    dirichlet_by_client(6),
    shards(6),
    by_quantity(6),
    feature_shift(dirichlet(6)),
    mixture([(0.5, iid(3)), (0.5, iid(3))]),
]


@pytest.mark.parametrize("rule", MANY, ids=lambda rule: type(rule).__name__)
def test_another_seed_gives_other_clients(rule: Partitioner) -> None:
    labels = np.arange(300) % 8

    assert not same(rule.assign(labels, 0), rule.assign(labels, 1))
    assert not same(rule.assign_test(labels, labels, 0), rule.assign_test(labels, labels, 1))


@settings(deadline=None)
@given(labels=labels_of(), num_clients=sizes, gamma=skews, seed=seeds)
def test_dirichlet_by_client_gives_all_clients_the_same_size(
    labels: Indices, num_clients: int, gamma: float, seed: int
) -> None:
    found = [len(part) for part in dirichlet_by_client(num_clients, gamma).assign(labels, seed)]

    assert max(found) - min(found) <= 1


def test_dirichlet_by_client_follows_the_draws_while_no_label_is_used_up() -> None:
    # With a tiny gamma a client wants one label only. 100 clients want 100 examples each, and every label has 1,000:
    # enough for ten clients. Where up to ten want it, they have nothing else.
    labels = np.repeat(np.arange(10), 1000)
    parts = dirichlet_by_client(100, 1e-6).assign(labels, 0)
    counts = np.stack([np.bincount(labels[part], minlength=10) for part in parts])

    wanted = counts.argmax(axis=1)
    served = [label for label in range(10) if (wanted == label).sum() <= 10]
    assert 0 < len(served) < 10
    assert all(counts[client].max() == 100 for client in range(100) if wanted[client] in served)
    assert any(counts[client].max() < 100 for client in range(100))


def test_dirichlet_by_client_is_even_for_a_large_gamma_and_of_few_labels_for_a_small_one() -> None:
    labels = np.arange(20_000) % 10

    def largest_share(gamma: float) -> float:
        parts = dirichlet_by_client(20, gamma).assign(labels, 0)
        return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))

    # Shares of 1,000 examples with equal proportions: 0.1 and a few standard deviations of 0.0095.
    assert largest_share(1e4) < 0.14
    assert largest_share(1e4) < largest_share(1.0) < largest_share(0.05)


def test_dirichlet_by_client_lets_chance_and_not_the_number_of_a_client_decide_who_gets_a_rare_label() -> None:
    # Label 1 has 50 of 1,050 examples, and everybody wants it: without a lot, client 0 would have most of it.
    labels = np.repeat([0, 1], [1000, 50])
    first = [int((labels[dirichlet_by_client(10, 1e3).assign(labels, seed)[0]] == 1).sum()) for seed in range(200)]

    # 5 of 50 on average; a mean of 200 draws with a standard deviation of 2.1 is within 0.15 of it, so 0.75 is far out.
    assert abs(np.mean(first) - 5) < 0.75


def test_shards_are_consecutive_pieces_of_the_sorted_labels() -> None:
    # 100 examples of ten labels, ten shards of ten: every shard is one label, and every client has two of them.
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 10))

    for part in shards(5, 2).assign(labels, 0):
        assert sorted(np.unique(labels[part], return_counts=True)[1]) == [10, 10]


def test_shards_cross_the_border_of_two_labels_where_sizes_ask_for_it() -> None:
    labels = np.repeat([0, 1], [7, 5])

    parts = shards(3, 1).assign(labels, 0)

    assert sorted(labels[part].tolist() for part in parts) == [[0, 0, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1]]


def test_by_quantity_with_sigma_zero_gives_equal_sizes_and_otherwise_log_normal_ones() -> None:
    labels = np.arange(50_000) % 10
    equal = [len(part) for part in by_quantity(100, 0.0).assign(labels, 0)]
    unequal = np.array([len(part) for part in by_quantity(2000, 0.8, min_examples=1).assign(labels, 0)])

    assert set(equal) == {500}
    # The standard deviation of the logarithm of sizes of about 25, each rounded; 2,000 draws give it to 0.013.
    assert float(np.log(unequal - 1 + 1e-9)[unequal > 1].std()) == pytest.approx(0.8, abs=0.08)


def test_by_quantity_leaves_labels_as_they_are() -> None:
    labels = np.arange(40_000) % 4
    for part in by_quantity(10, 0.5).assign(labels, 0):
        shares = np.bincount(labels[part]) / len(part)
        # A share of a quarter of n examples has a standard deviation of at most 0.43 / sqrt(n).
        assert np.abs(shares - 0.25).max() < 2.2 / np.sqrt(len(part))


@pytest.mark.parametrize("rule", [dirichlet_by_client(50, 1e-6), shards(50, 1), by_quantity(50, 10.0, 1)])
@pytest.mark.parametrize("labels", [np.zeros(60, dtype=np.int64), np.repeat([0, 1], [59, 1])], ids=["one", "rare"])
def test_one_class_or_more_clients_than_examples_of_a_class_is_no_trouble(rule: Partitioner, labels: Indices) -> None:
    parts = rule.assign(labels, 0)

    assert all(len(part) for part in parts)
    assert sorted(np.concatenate(parts)) == list(range(60))


@given(total=st.integers(0, 1000), shares=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20))
def test_whole_numbers_in_proportion_sum_to_the_total_and_are_off_by_less_than_one(
    total: int, shares: list[float]
) -> None:
    found = apportion(total, np.array(shares))

    assert found.sum() == total
    assert np.abs(found - total * np.array(shares) / sum(shares)).max() < 1 + 1e-9


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (dirichlet_by_client(11), "1 of 11 clients would get no examples.*at most 10 clients"),
        (shards(6, 2), "10 examples cannot be cut into 12 shards: use fewer clients, or fewer shards"),
        (by_quantity(3), "10 train examples cannot give 3 clients 5 each: use at most 2 clients"),
    ],
)
def test_a_rule_that_cannot_serve_every_client_says_what_to_change(rule: Partitioner, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        rule.assign(np.arange(10) % 5, 0)


@pytest.mark.parametrize(
    ("make", "problems"),
    [
        (lambda: dirichlet_by_client(0, -1), ["num_clients", "gamma"]),
        (lambda: dirichlet_by_client(2, True), ["gamma"]),
        (lambda: shards(0, 1.5), ["num_clients", "shards_per_client"]),
        (lambda: by_quantity(0, -1.0, 0), ["num_clients", "min_examples", "sigma"]),
        (lambda: by_quantity(3, float("inf")), ["sigma"]),
        (lambda: by_class(3, "2"), ["classes_per_client"]),
    ],
)
def test_all_bad_options_are_listed_at_once(make: Any, problems: list[str]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        make()
    assert [problem.split()[0] for problem in caught.value.problems] == problems
