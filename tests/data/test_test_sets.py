"""What clients are tested on: their own examples, or a data set's test examples by one of three rules."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.types import Batch
from plures.data import DataSet, by_class, dirichlet, iid, natural, partition
from plures.data.splitting import ClientIndices
from plures.data.test_sets import tests_in_proportion as draw_tests


def numbered(start: int, labels: Any) -> Batch:
    targets = torch.as_tensor(np.asarray(labels), dtype=torch.int64)
    return Batch(torch.arange(start, start + len(targets))[:, None].float(), targets)


def dataset(**changes: Any) -> DataSet:
    """400 examples from 0 on, and 200 test examples from 1,000 on, of four labels."""
    both = {"examples": numbered(0, np.arange(400) % 4), "test": numbered(1000, np.arange(200) % 4)}
    return DataSet(name="numbers", **both | changes)


def numbers_in_test(federation: Any) -> list[int]:
    return [int(x) for c in range(federation.num_clients) for x in federation.client(c).test.inputs[:, 0]]


def test_by_default_test_examples_are_dealt_by_the_same_rule_where_there_are_some() -> None:
    with_tests, without = (partition(given, by_class(4, 2), seed=0) for given in (dataset(), dataset(test=None)))

    assert sorted(numbers_in_test(with_tests)) == list(range(1000, 1200))
    assert max(numbers_in_test(without)) < 400
    same = partition(dataset(), by_class(4, 2), seed=0, test_rule="same")
    assert same.fingerprint() == with_tests.fingerprint()


def test_own_leaves_the_data_sets_test_examples_out() -> None:
    own = partition(dataset(), dirichlet(4), seed=0, test_rule="own")

    assert own.fingerprint() == partition(dataset(test=None), dirichlet(4), seed=0).fingerprint()


def test_joined_deals_and_splits_all_examples_alike() -> None:
    federation = partition(dataset(), iid(5), seed=0, test_rule="joined")

    held = [int(x) for c in range(5) for batch in federation.client(c).splits.values() for x in batch.inputs[:, 0]]
    assert sorted(held) == [*range(400), *range(1000, 1200)]
    assert [batch.num_examples for batch in federation.client(0).splits.values()] == [72, 24, 24]


def test_joined_examples_keep_their_owners() -> None:
    owned = dataset(owners=np.arange(400) % 2, test_owners=np.arange(200) % 2, owner_names=("even", "odd"))

    federation = partition(owned, natural(), seed=0, test_rule="joined")

    held = [int(x) for batch in federation.client(1).splits.values() for x in batch.inputs[:, 0]]
    assert len(held) == 300
    assert all(x % 2 == 1 for x in held)


@settings(deadline=None)
@given(
    trained=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    size=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_proportions_take_the_ceiling_of_each_share_of_distinct_test_examples(
    trained: list[int], size: int, seed: int
) -> None:
    labels, test_labels = np.array(trained), np.repeat(np.arange(6), 50)
    nothing = np.empty(0, dtype=np.int64)

    [found] = draw_tests(
        [ClientIndices(np.arange(len(labels)), nothing, nothing)], labels, test_labels, size=size, seed=seed
    )

    assert len(set(found.test.tolist())) == len(found.test)
    for label in range(6):
        share = int((labels == label).sum()) * size / len(labels)
        assert int((test_labels[found.test] == label).sum()) == ceil(round(share, 9))


def test_a_federation_with_proportions_has_about_test_size_each_and_clients_may_share_images() -> None:
    federation = partition(dataset(), dirichlet(8, 0.3), seed=0, test_rule="proportions", test_size=100)

    for client in range(8):
        data = federation.client(client)
        trained = torch.bincount(data.train.targets, minlength=4)
        wanted = [min(50, ceil(int(count) * 100 / int(trained.sum()))) for count in trained]
        assert torch.bincount(data.test.targets, minlength=4).tolist() == wanted
        assert data.validation.num_examples > 0
    assert len(numbers_in_test(federation)) > len(set(numbers_in_test(federation)))


def test_proportions_depend_on_the_seed_and_can_be_made_again() -> None:
    options: dict[str, Any] = {"test_rule": "proportions", "test_size": 20}
    found = [partition(dataset(), iid(4), seed=seed, **options).fingerprint() for seed in (0, 0, 1)]

    assert found[0] == found[1] != found[2]


def test_proportions_work_for_natural_clients_whose_tests_have_no_owner() -> None:
    owned = dataset(owners=np.arange(400) % 2)

    federation = partition(owned, natural(min_test=10), seed=0, test_rule="proportions", test_size=12)

    # Clients have every other example: two labels of four, about half of their examples each, so 12 or, rounded up, 13.
    assert {federation.client(client).test.num_examples for client in range(2)} <= {12, 13}


@pytest.mark.parametrize(
    ("given", "options", "error", "message"),
    [
        (
            dataset(test=None),
            {"test_rule": "same"},
            InvalidData,
            "'same' needs test examples, but .* 'numbers' has none",
        ),
        (dataset(test=None), {"test_rule": "proportions"}, InvalidData, "'proportions' needs test examples"),
        (
            dataset(),
            {"test_rule": "proportion"},
            InvalidConfig,
            "test_rule is 'proportion'. Did you mean 'proportions'",
        ),
        (dataset(), {"test_rule": "proportions", "test_size": 0}, InvalidConfig, "test_size is 0"),
        (
            replace(dataset(), test=numbered(0, [9, 9])),
            {"test_rule": "proportions"},
            InvalidData,
            "Client 0 has no test examples",
        ),
    ],
    ids=["same", "proportions", "misspelt", "size", "other labels"],
)
def test_a_test_rule_that_cannot_be_says_why(
    given: DataSet, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        partition(given, iid(4), seed=0, **options)
