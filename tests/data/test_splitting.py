"""Train, validation and test of a client: every example once, each by a shuffle of the client's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig, InvalidData
from plures.data.splitting import DEFAULT_RATIOS, Ratios, split_client, split_clients, split_sizes


@settings(deadline=None)
@given(num_examples=st.integers(3, 500), seed=st.integers(0, 99), client=st.integers(0, 99))
def test_every_example_is_in_exactly_one_split(num_examples: int, seed: int, client: int) -> None:
    indices = np.arange(num_examples) * 7
    split = split_client(indices, DEFAULT_RATIOS, seed=seed, client=client)
    assert sorted(np.concatenate(split)) == indices.tolist()
    assert min(len(part) for part in split) >= 1


@given(num_examples=st.integers(3, 300), weights=st.tuples(st.integers(1, 99), st.integers(0, 99), st.integers(0, 99)))
def test_what_is_asked_for_gets_at_least_one_example(num_examples: int, weights: tuple[int, int, int]) -> None:
    ratios: Ratios = tuple(weight / sum(weights) for weight in weights)
    sizes = split_sizes(num_examples, ratios)
    assert sum(sizes) == num_examples
    assert [size > 0 for size in sizes] == [ratio > 0 for ratio in ratios]
    # Rounding moves at most half an example per split, and nobody goes below one.
    assert all(abs(size - num_examples * ratio) <= 2 for size, ratio in zip(sizes, ratios, strict=True))


def test_ten_examples_split_six_two_two_and_five_split_three_one_one() -> None:
    assert split_sizes(10, DEFAULT_RATIOS) == (6, 2, 2)
    assert split_sizes(5, DEFAULT_RATIOS) == (3, 1, 1)


def test_splits_depend_on_the_seed_and_the_client_only() -> None:
    indices = np.arange(50)
    first = split_client(indices, DEFAULT_RATIOS, seed=0, client=3)
    assert np.array_equal(first.train, split_client(indices, DEFAULT_RATIOS, seed=0, client=3).train)
    assert not np.array_equal(first.train, split_client(indices, DEFAULT_RATIOS, seed=1, client=3).train)
    assert not np.array_equal(first.train, split_client(indices, DEFAULT_RATIOS, seed=0, client=4).train)


def test_with_own_test_examples_the_others_split_three_to_one() -> None:
    tests = [np.arange(4)]
    [split] = split_clients([np.arange(100)], DEFAULT_RATIOS, seed=0, names=["0"], tests=tests)
    assert (len(split.train), len(split.validation)) == (75, 25)
    assert np.array_equal(split.test, tests[0])


def test_with_own_test_examples_everything_else_may_be_trained_on() -> None:
    [split] = split_clients([np.arange(9)], (1, 0, 0), seed=0, names=["0"], tests=[np.arange(2)])
    assert (len(split.train), len(split.validation), len(split.test)) == (9, 0, 2)


def test_every_client_with_too_few_examples_is_named() -> None:
    with pytest.raises(InvalidData) as caught:
        split_clients([np.arange(1), np.arange(9), np.arange(2)], DEFAULT_RATIOS, seed=0, names=["a", "b", "c"])
    assert caught.value.problems == [
        "Client a has one example, too few for train, validation, test: use fewer clients, or drop this one.",
        "Client c has 2 examples, too few for train, validation, test: use fewer clients, or drop this one.",
    ]


@pytest.mark.parametrize(
    ("ratios", "message"),
    [
        ((0.5, 0.2), "three shares"),
        ((0.8, -0.2, 0.4), "three shares"),
        ((float("nan"), 0.5, 0.5), "three shares"),
        ((0.6, 0.2, 0.1), "sums to 0.9"),
        ((0.0, 0.5, 0.5), "nothing to train on"),
        ((0.8, 0.2, 0.0), "nothing to test on"),
    ],
)
def test_ratios_that_cannot_be_are_refused(ratios: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        split_clients([np.arange(10)], ratios, seed=0, names=["0"])
