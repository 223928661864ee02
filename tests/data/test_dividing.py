"""Splits that respect groups or time: nothing of a test example is seen in training."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.types import Batch
from plures.data import DataSet, Ratios, iid, natural, partition
from plures.data.dividing import by_group, by_time

seeds = st.integers(0, 1000)
ratios = st.sampled_from([(0.6, 0.2, 0.2), (0.75, 0.0, 0.25), (0.34, 0.33, 0.33), (0.05, 0.05, 0.9), (0.9, 0.1, 0.0)])


def dataset(labels: Any, **known: Any) -> DataSet:
    targets = torch.as_tensor(np.asarray(labels), dtype=torch.int64)
    return DataSet(name="things", examples=Batch(torch.arange(len(targets))[:, None].float(), targets), **known)


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=3, max_size=30),
    pure=st.booleans(),
    split=ratios,
    seed=seeds,
)
def test_groups_stay_whole_and_every_split_gets_some(sizes: list[int], pure: bool, split: Ratios, seed: int) -> None:
    draws = np.random.default_rng(seed)
    groups = np.repeat(draws.permutation(len(sizes)) * 7, sizes)
    labels = groups % 3 if pure else draws.integers(0, 3, len(groups))
    indices = draws.permutation(len(groups))

    found = by_group(groups, dataset(labels), seed)(indices, split, 0)

    assert sorted(np.concatenate(found)) == sorted(indices)
    held = [set(groups[part].tolist()) for part in found]
    assert sum(map(len, held)) == len(set.union(*held)) == len(sizes)
    assert [len(part) > 0 for part in found] == [share > 0 for share in split]


@settings(deadline=None)
@given(num_groups=st.integers(20, 60), split=ratios, seed=seeds)
def test_sizes_are_as_near_to_the_shares_as_equal_groups_allow(num_groups: int, split: Ratios, seed: int) -> None:
    groups = np.repeat(np.arange(num_groups), 4)

    found = by_group(groups, dataset(groups % 5), seed)(np.arange(len(groups)), split, 0)

    assert [len(part) for part in found] == pytest.approx([len(groups) * share for share in split], abs=4 * 1.01)


def test_twenty_drawings_of_every_character_are_divided_15_to_5() -> None:
    # Six characters, twenty drawings of each, four turned copies of every drawing.
    drawings = np.repeat(np.arange(6 * 20), 4)
    characters = drawings // 20
    for seed in range(5):
        train, _, test = by_group(drawings, dataset(characters), seed)(np.arange(480), (0.75, 0.0, 0.25), 0)
        assert np.bincount(characters[train]).tolist() == [60] * 6
        assert np.bincount(characters[test]).tolist() == [20] * 6


def test_which_groups_are_tested_depends_on_the_seed_and_the_client_only() -> None:
    groups = np.repeat(np.arange(30), 3)
    things = dataset(groups % 2)

    def tested(seed: int, client: int) -> list[int]:
        return by_group(groups, things, seed)(np.arange(90), (0.6, 0.2, 0.2), client).test.tolist()

    assert tested(0, 0) == tested(0, 0)
    assert tested(0, 0) != tested(1, 0)
    assert tested(0, 0) != tested(0, 1)


@settings(deadline=None)
@given(times=st.lists(st.integers(0, 10), min_size=3, max_size=60), split=ratios)
def test_whatever_is_tested_is_not_earlier_than_what_is_trained_on(times: list[int], split: Ratios) -> None:
    when = np.array(times)

    found = by_time(when)(np.arange(len(when)), split, 0)

    assert sorted(np.concatenate(found)) == list(range(len(when)))
    moments = [when[part] for part in found if len(part)]
    assert all(earlier.max() <= later.min() for earlier, later in pairwise(moments))


def test_a_federation_is_split_by_time_within_each_client() -> None:
    times = np.random.default_rng(0).permutation(60)
    things = dataset(np.arange(60) % 2, times=times, owners=np.arange(60) % 3)

    federation = partition(things, natural(), seed=0, split_by="time")

    for client in range(3):
        data = federation.client(client)
        train, validation, test = (times[batch.inputs[:, 0].long()] for batch in data.splits.values())
        assert train.max() < validation.min()
        assert validation.max() < test.min()
        assert (len(train), len(validation), len(test)) == (12, 4, 4)


def test_a_federation_is_split_by_group_within_each_client() -> None:
    groups = np.repeat(np.arange(30), 4)
    things = dataset(np.arange(120) % 2, groups=groups, owners=groups % 3)

    federation = partition(things, natural(), seed=0, split_by="group")

    for client in range(3):
        held = [set(groups[batch.inputs[:, 0].long()]) for batch in federation.client(client).splits.values()]
        assert [len(some) for some in held] == [6, 2, 2]
        assert len(set.union(*held)) == 10


def test_with_own_test_examples_groups_are_divided_between_train_and_validation() -> None:
    groups = np.repeat(np.arange(16), 3)
    test = Batch(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64))
    things = dataset(groups % 2, groups=groups, owners=groups * 0, test=test, test_owners=np.zeros(4, dtype=np.int64))

    data = partition(things, natural(), seed=0, split_by="group").client(0)

    assert [batch.num_examples for batch in data.splits.values()] == [36, 12, 4]


def test_a_client_with_too_few_groups_is_refused_by_name_or_dropped_by_a_filter() -> None:
    groups = np.repeat([0, 1, 2, 3, 4, 5], 5)
    things = dataset(groups % 2, groups=groups, owners=np.repeat([0, 1], [25, 5]), owner_names=("ann", "bob"))

    with pytest.raises(InvalidData, match="Client bob has 5 examples, too few for train, validation, test"):
        partition(things, natural(), seed=0, split_by="group")
    assert list(partition(things, natural(min_test=1), seed=0, split_by="group").names) == ["ann"]


@pytest.mark.parametrize(
    ("known", "split_by", "error", "message"),
    [
        (
            {},
            "group",
            InvalidData,
            "split_by = 'group' .* 'things' does not say which examples belong together: .*'random'",
        ),
        ({}, "time", InvalidData, "split_by = 'time' .* 'things' does not say when its examples are from"),
        ({}, "grup", InvalidConfig, "split_by is 'grup'. Did you mean 'group'"),
        ({"groups": np.arange(40) // 20}, "group", InvalidData, "would leak, for clients 0 and 1 both have .* group 0"),
    ],
    ids=["no groups", "no times", "misspelt", "divided groups"],
)
def test_a_split_that_cannot_be_says_why(
    known: dict[str, Any], split_by: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        partition(dataset(np.arange(40) % 2, **known), iid(4), seed=0, split_by=split_by)
