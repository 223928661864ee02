"""Every rule deals every example exactly once, ends, and depends on the labels and the seed alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import PARTITIONERS, Partitioner, by_class, dirichlet, iid
from plures.data.dealing import Indices, top_up

EXAMPLES_PER_CLASS = 30
MAX_CLIENTS = 12
"""With these, no client can end empty: each class has more examples than there are clients."""

seeds = st.integers(0, 2**31)
num_clients = st.integers(1, MAX_CLIENTS)


@st.composite
def labels_of(draw: st.DrawFn, max_classes: int = 9) -> Indices:
    """Some classes, not numbered in a row, of unequal sizes, in random order."""
    classes = draw(st.lists(st.integers(0, 50), min_size=1, max_size=max_classes, unique=True))
    extra = draw(st.lists(st.integers(0, 20), min_size=len(classes), max_size=len(classes)))
    labels = np.repeat(classes, EXAMPLES_PER_CLASS + np.array(extra))
    return np.random.default_rng(draw(seeds)).permutation(labels)


@st.composite
def class_rules(draw: st.DrawFn) -> tuple[Indices, Any]:
    labels = draw(labels_of())
    num_classes = len(np.unique(labels))
    held = draw(st.integers(1, num_classes))
    fewest = -(-num_classes // held)
    return labels, by_class(draw(st.integers(fewest, MAX_CLIENTS)), held)


any_rule = st.one_of(
    st.builds(iid, num_clients), st.builds(dirichlet, num_clients, st.sampled_from([0.01, 0.4, 100.0]), st.just(2))
)
any_case = st.one_of(st.tuples(labels_of(), any_rule), class_rules())


def same(left: list[Indices], right: list[Indices]) -> bool:
    return len(left) == len(right) and all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@settings(deadline=None)
@given(case=any_case, seed=seeds)
def test_every_example_goes_to_exactly_one_client(case: tuple[Indices, Partitioner], seed: int) -> None:
    labels, rule = case
    parts = rule.assign(labels, seed)
    assert len(parts) == rule.num_clients
    assert all(len(part) for part in parts)
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))


@settings(deadline=None)
@given(case=any_case, seed=seeds)
def test_every_test_example_goes_to_exactly_one_client(case: tuple[Indices, Partitioner], seed: int) -> None:
    labels, rule = case
    test_labels = np.tile(labels, 2)
    parts = rule.assign_test(labels, test_labels, seed)
    assert len(parts) == rule.num_clients
    assert sorted(np.concatenate(parts)) == list(range(len(test_labels)))


@settings(deadline=None)
@given(case=any_case, seed=seeds)
def test_the_same_seed_gives_the_same_clients(case: tuple[Indices, Partitioner], seed: int) -> None:
    labels, rule = case
    assert same(rule.assign(labels, seed), rule.assign(labels.copy(), seed))


@pytest.mark.parametrize("rule", [iid(5), by_class(5, 2), dirichlet(5)])
def test_another_seed_gives_other_clients(rule: Partitioner) -> None:
    labels = np.arange(200) % 8
    assert not same(rule.assign(labels, 0), rule.assign(labels, 1))
    assert not same(rule.assign_test(labels, labels, 0), rule.assign_test(labels, labels, 1))


@settings(deadline=None)
@given(labels=labels_of(), rule=st.builds(iid, num_clients), seed=seeds)
def test_iid_sizes_differ_by_at_most_one(labels: Indices, rule: Partitioner, seed: int) -> None:
    sizes = [len(part) for part in rule.assign(labels, seed)]
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(case=class_rules(), seed=seeds)
def test_by_class_every_class_is_owned_and_no_client_has_more_than_k(case: tuple[Indices, Any], seed: int) -> None:
    labels, rule = case
    owners = rule.owners_of_classes(labels, seed)
    assert sorted(owners) == np.unique(labels).tolist()
    assert all(len(clients) for clients in owners.values())
    held = np.bincount(np.concatenate(list(owners.values())), minlength=rule.num_clients)
    assert (held == rule.classes_per_client).all()
    for client, part in enumerate(rule.assign(labels, seed)):
        assert all(client in owners[int(label)] for label in np.unique(labels[part]))


@settings(deadline=None)
@given(case=class_rules(), seed=seeds)
def test_by_class_owners_of_a_class_have_equally_many_of_it(case: tuple[Indices, Any], seed: int) -> None:
    labels, rule = case
    parts = rule.assign(labels, seed)
    for label, clients in rule.owners_of_classes(labels, seed).items():
        sizes = [int((labels[parts[client]] == label).sum()) for client in clients]
        assert sum(sizes) == int((labels == label).sum())
        # Dealt one at a time from the first owner on, so the first ones may have one more.
        assert sizes == sorted(sizes, reverse=True)
        assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(case=class_rules(), seed=seeds)
def test_by_class_test_examples_go_to_the_owners_of_their_class(case: tuple[Indices, Any], seed: int) -> None:
    labels, rule = case
    owners = rule.owners_of_classes(labels, seed)
    for client, part in enumerate(rule.assign_test(labels, labels[::-1], seed)):
        assert all(client in owners[int(label)] for label in np.unique(labels[::-1][part]))


def test_by_class_gives_unowned_classes_to_the_first_clients_in_pairs() -> None:
    # Ten classes and five clients with two each: some class is all but surely without a client, and then
    # the five consecutive pairs of a permutation go to the five clients: each class has exactly one owner.
    labels = np.arange(100) % 10
    for seed in range(20):
        assert all(len(clients) == 1 for clients in by_class(5, 2).owners_of_classes(labels, seed).values())


def test_by_class_fills_the_last_group_when_the_classes_do_not_divide() -> None:
    # Five classes, three clients with two each: six places, so one class has two owners.
    labels = np.arange(50) % 5
    for seed in range(20):
        owners = by_class(3, 2).owners_of_classes(labels, seed)
        assert sorted(len(clients) for clients in owners.values()) == [1, 1, 1, 1, 2]


def test_by_class_shuffles_the_examples_of_a_class_before_dealing() -> None:
    # One class and two owners: unshuffled, the first would get the even positions.
    labels = np.zeros(40, dtype=np.int64)
    first, _ = by_class(2, 1).assign(labels, 0)
    assert set(first % 2) == {0, 1}
    assert not np.array_equal(first, by_class(2, 1).assign(labels, 1)[0])


def test_by_class_with_all_classes_gives_every_client_every_class() -> None:
    labels = np.arange(100) % 10
    for part in by_class(4, 10).assign(labels, 0):
        assert np.unique(labels[part]).tolist() == list(range(10))


@pytest.mark.parametrize("alpha", [1e-300, 1e-3, 0.01, 1.0, 1e6])
def test_dirichlet_ends_and_every_client_has_its_minimum(alpha: float) -> None:
    labels = np.arange(1797) % 10
    parts = dirichlet(100, alpha, min_examples=10).assign(labels, 3)
    assert min(len(part) for part in parts) >= 10
    assert sorted(np.concatenate(parts)) == list(range(1797))


def test_dirichlet_ends_when_the_minimum_takes_every_example() -> None:
    # 100 examples, 20 clients, at least 5 each: only equal sizes will do.
    parts = dirichlet(20, 0.01, min_examples=5).assign(np.arange(100) % 4, 0)
    assert [len(part) for part in parts] == [5] * 20


def test_dirichlet_is_more_skewed_for_a_smaller_alpha() -> None:
    labels = np.arange(5000) % 10

    def mean_classes(alpha: float) -> float:
        parts = dirichlet(20, alpha).assign(labels, 0)
        return float(np.mean([len(np.unique(labels[part])) for part in parts]))

    assert mean_classes(0.05) < mean_classes(0.5) < mean_classes(50) == 10


def test_dirichlet_test_examples_follow_the_training_proportions() -> None:
    labels, test_labels = np.arange(20_000) % 4, np.arange(20_000) % 4
    rule = dirichlet(5, 0.3)
    for own, test in zip(rule.assign(labels, 1), rule.assign_test(labels, test_labels, 1), strict=True):
        trained, tested = (np.bincount(labels[part], minlength=4) / 5000 for part in (own, test))
        # A share of 5,000 draws has a standard deviation of at most 0.5 / sqrt(5000) = 0.007.
        assert np.abs(trained - tested).max() < 0.035
        assert (tested[trained == 0] == 0).all()


def test_dirichlet_leaves_no_client_without_test_examples() -> None:
    labels, test_labels = np.arange(2000) % 10, np.arange(300) % 10
    rule = dirichlet(60, 0.05)
    tested = rule.assign_test(labels, test_labels, 0)
    assert min(len(part) for part in tested) >= 1
    for own, test in zip(rule.assign(labels, 0), tested, strict=True):
        assert set(test_labels[test]) <= set(labels[own])


def test_topping_up_takes_from_the_largest_clients_only() -> None:
    owners = np.repeat([0, 1, 2], [10, 4, 1])
    moved = top_up(owners, 4, 3, np.random.default_rng(0))
    # Client 2 lacks two and client 3 lacks three; the largest, with ten, has five left after giving five.
    assert np.bincount(moved).tolist() == [5, 4, 3, 3]
    assert (moved[owners == 1] == 1).all()


def test_the_registry_makes_partitioners_from_options() -> None:
    assert PARTITIONERS["iid"](num_clients=3) == iid(3)
    assert PARTITIONERS["by_class"](num_clients=3, classes_per_client=4) == by_class(3, 4)
    assert PARTITIONERS["dirichlet"](num_clients=3, alpha=1.0) == dirichlet(3, 1.0)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (iid(11), r"1 of 11 clients would get no examples \(clients .*at most 10 clients"),
        (by_class(40, 1), "clients would get no examples.*fewer clients, or more classes per client"),
        (by_class(3, 6), "only 5 classes.*at most 5"),
        (by_class(2, 2), "cannot own all 5 classes.*more clients"),
        (dirichlet(3), "10 examples cannot give 3 clients 5 each: use at most 2 clients"),
    ],
)
def test_a_rule_that_cannot_serve_every_client_says_what_to_change(rule: Partitioner, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        rule.assign(np.arange(10) % 5, 0)


@pytest.mark.parametrize("rule", [by_class(3, 2), dirichlet(2, min_examples=1)])
def test_test_examples_of_a_class_nobody_trains_on_are_refused(rule: Partitioner) -> None:
    with pytest.raises(InvalidData, match=r"no training example has \(7\)"):
        rule.assign_test(np.arange(20) % 4, np.array([0, 1, 7]), 0)


def test_a_test_set_smaller_than_the_population_is_refused() -> None:
    for rule in (iid(4), by_class(4, 2), dirichlet(4)):
        with pytest.raises(InvalidData, match="would get no examples"):
            rule.assign_test(np.arange(40) % 4, np.array([0, 1]), 0)


@pytest.mark.parametrize(
    ("make", "problems"),
    [
        (lambda: iid(0), ["num_clients"]),
        (lambda: iid(True), ["num_clients"]),
        (lambda: by_class(2.5, -1), ["num_clients", "classes_per_client"]),
        (lambda: dirichlet(0, -0.5, min_examples=0), ["num_clients", "min_examples", "alpha"]),
        (lambda: dirichlet(2, float("nan")), ["alpha"]),
        (lambda: dirichlet(2, "0.4"), ["alpha"]),
    ],
)
def test_all_bad_options_are_listed_at_once(make: Any, problems: list[str]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        make()
    assert [problem.split()[0] for problem in caught.value.problems] == problems
