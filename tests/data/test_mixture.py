"""Several rules in one federation: each deals its share to clients of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plures.core.errors import InvalidConfig
from plures.data import by_class, dirichlet, iid, mixture, natural

LABELS = np.arange(1000) % 10


def test_the_clients_of_the_first_rule_come_first_and_share_its_share_of_the_examples() -> None:
    rule = mixture([(0.3, by_class(5, 2)), (0.7, iid(4))])
    parts = rule.assign(LABELS, 0)

    assert rule.num_clients == 9
    assert sum(map(len, parts[:5])) == 300
    assert sum(map(len, parts[5:])) == 700
    assert all(len(np.unique(LABELS[part])) == 2 for part in parts[:5])
    assert all(len(np.unique(LABELS[part])) == 10 for part in parts[5:])


def test_test_examples_go_to_clients_that_train_on_their_class() -> None:
    rule = mixture([(0.3, by_class(5, 2)), (0.7, dirichlet(4, 0.1))])
    trained, tested = rule.assign(LABELS, 0), rule.assign_test(LABELS, LABELS, 0)

    assert sorted(np.concatenate(tested)) == list(range(1000))
    for own, test in zip(trained, tested, strict=True):
        assert set(LABELS[test]) <= set(LABELS[own])


def test_a_class_that_only_one_rule_has_is_tested_there() -> None:
    # Two examples of class 1 among 40: with a share of a half, seeds are found where one rule has both of them.
    labels, tests = np.repeat([0, 1], [38, 2]), np.repeat([0, 1], [30, 10])
    rule = mixture([(0.5, iid(1)), (0.5, iid(1))])
    alone = 0
    for seed in range(30):
        trained, tested = rule.assign(labels, seed), rule.assign_test(labels, tests, seed)
        without = [client for client in range(2) if not (labels[trained[client]] == 1).any()]
        alone += len(without)
        assert all((tests[tested[client]] == 0).all() for client in without)
    assert alone > 0


def test_two_equal_rules_do_not_deal_equally() -> None:
    parts = mixture([(0.5, dirichlet(3, 0.1)), (0.5, dirichlet(3, 0.1))]).assign(np.zeros(1000, dtype=np.int64), 0)

    assert [len(part) for part in parts[:3]] != [len(part) for part in parts[3:]]


def test_a_mixture_may_hold_a_mixture() -> None:
    inner = mixture([(0.5, iid(2)), (0.5, by_class(5, 2))])
    parts = mixture([(0.4, inner), (0.6, iid(3))]).assign(LABELS, 0)

    assert len(parts) == 10
    assert sorted(np.concatenate(parts)) == list(range(1000))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "no parts"),
        ([(0.5, iid(2)), (0.4, iid(2))], "sum to 0.9: they sum to 1"),
        ([(0.0, iid(2)), (1.0, iid(2))], "A share of the mixture is 0.0"),
        ([("half", iid(2))], "A share of the mixture is 'half'"),
        ([(True, iid(2))], "A share of the mixture is True"),
        ([(1.0, natural())], "Natural needs the whole data set, so it cannot be a part"),
    ],
)
def test_a_mixture_that_cannot_be_says_why(parts: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        mixture(parts)
