"""Distances of masks against counting them pair by pair."""

from __future__ import annotations

import itertools
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plures.core.types import Params
from plures.evaluate.masks import PAIRS_OF, mask_distances, pairwise, spaced, used_masks

SHAPES = {"a": (3, 4), "b": (5,), "c": ()}
"""18 coordinates."""


def masks(number: int, density: float = 0.5) -> Params:
    draws = torch.Generator().manual_seed(number)
    return {name: torch.rand(shape, generator=draws) < density for name, shape in SHAPES.items()}


def distance(left: Params, right: Params) -> float:
    """Coordinates that differ, over all."""
    return sum(int((left[name] != right[name]).sum()) for name in left) / 18


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=12), st.floats(0, 1))
def test_the_mean_is_that_over_all_pairs(numbers, density):
    kept = {client: masks(number, density) for client, number in enumerate(numbers)}

    found = mask_distances(kept, kept.__getitem__)

    pairs = [distance(left, right) for left, right in itertools.combinations(kept.values(), 2)]
    assert found.mean == pytest.approx(statistics.fmean(pairs), abs=1e-12)
    held = [sum(int(mask.sum()) for mask in own.values()) / 18 for own in kept.values()]
    assert found.density == pytest.approx(statistics.fmean(held), abs=1e-12)
    assert found.clients == len(numbers)


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=6))
def test_the_pairs_are_the_distance_of_each_from_each(numbers):
    kept = {client: masks(number) for client, number in enumerate(numbers)}

    found = mask_distances(kept, kept.__getitem__)

    assert found.sample == tuple(range(len(numbers)))
    for left, row in zip(kept.values(), found.pairs, strict=True):
        assert row == pytest.approx([distance(left, right) for right in kept.values()], abs=5e-7)


def test_equal_masks_are_at_distance_0_and_opposite_ones_at_1():
    one = masks(1)
    other = {name: ~mask for name, mask in one.items()}

    assert mask_distances([0, 1], lambda client: one).mean == 0.0
    assert mask_distances([0, 1], lambda client: [one, other][client]).pairs == ((0.0, 1.0), (1.0, 0.0))


def test_of_many_clients_some_evenly_spaced_are_compared_pair_by_pair():
    kept = {client: masks(client) for client in range(100)}

    found = mask_distances(kept, kept.__getitem__)

    assert found.clients == 100
    assert len(found.sample) == len(found.pairs) == len(found.pairs[0]) == PAIRS_OF
    assert (found.sample[0], found.sample[-1]) == (0, 99)
    assert {after - before for before, after in itertools.pairwise(found.sample)} == {5, 6}
    assert found.pairs[1][2] == pytest.approx(distance(kept[found.sample[1]], kept[found.sample[2]]), abs=5e-7)
    assert found.mean == pytest.approx(0.5, abs=0.03)  # of independent halves; the mean of 18 * 4,950 coordinates


@given(st.integers(1, 500))
def test_a_sample_has_no_client_twice(count):
    found = spaced(range(count))

    assert len(found) == len(set(found)) == min(count, PAIRS_OF)
    assert list(found) == sorted(found)


def test_one_client_has_a_density_but_no_distance_from_others():
    found = mask_distances([7], lambda client: {"a": torch.tensor([True, False, False, False])})

    assert found.as_json() == {"clients": 1, "density": 0.25, "mean": None, "sample": (7,), "pairs": ((0.0,),)}


def test_without_masks_there_is_nothing_to_tell():
    assert mask_distances([], lambda client: {}) is None
    assert mask_distances([1, 2], lambda client: {}) is None
    assert pairwise([]) == ()


def test_clients_without_masks_are_left_out():
    kept = {0: {}, 1: masks(1), 2: {}, 3: masks(3)}

    found = mask_distances(kept, kept.__getitem__)

    assert (found.clients, found.sample) == (2, (1, 3))
    assert found.mean == pytest.approx(distance(kept[1], kept[3]), abs=1e-12)


def test_large_masks_are_counted_exactly():
    """Sums of ones in single precision would end at 2 ** 24; a tensor of 3 million entries stays far below."""
    one, other = torch.ones(3_000_000, dtype=torch.bool), torch.ones(3_000_000, dtype=torch.bool)
    other[-3:] = False

    found = mask_distances([0, 1], lambda client: {"a": [one, other][client]})

    assert found.mean == 1e-6
    assert found.pairs[0][1] == 1e-6


# What a client's model uses


def bits(*values: int) -> torch.Tensor:
    return torch.tensor(values) > 0


def test_masks_go_by_the_names_of_their_parameters():
    found = used_masks({"a": torch.ones(3), "mask.a": bits(1, 0, 1), "candidate.a": bits(0, 0, 0)})

    assert {name: mask.tolist() for name, mask in found.items()} == {"a": [True, False, True]}


def test_scores_and_votes_tell_the_bits_that_a_client_owns_and_has_chosen():
    """Its own bit is 1 where its score is positive; a vote comes before it, where there is one; what it does not own
    it does not use."""
    params = {
        "w": torch.zeros(7),
        "owned.w": bits(1, 1, 1, 1, 1, 0, 0),
        "score.w": torch.tensor([0.5, -0.5, 0.0, -0.5, 0.5, 0.5, -0.5]),
        "given.w": bits(0, 0, 0, 1, 1, 0, 1),
        "vote.w": bits(1, 1, 1, 1, 0, 1, 1),
    }

    (found,) = used_masks(params).items()

    assert (found[0], found[1].int().tolist()) == ("w", [1, 0, 0, 1, 0, 0, 0])


def test_layers_with_such_names_are_no_masks():
    by_chance = {"mask.weight": torch.ones(2), "score.weight": torch.ones(2), "owned.weight": torch.ones(2)}

    assert used_masks(by_chance) == {}
    assert used_masks({"owned.weight": bits(1, 0)}) == {}
