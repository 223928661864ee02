"""The search for masks: which weights are dropped, which are taken, how many, and what a search may give."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from plures.core.client import arrival
from plures.core.context import Server, lone_facts, make_visit
from plures.core.errors import InvalidConfig
from plures.core.networks import OneNetwork
from plures.core.problem import Problem
from plures.core.program import Program
from plures.local import cosine, epochs, proximal, steps
from plures.local.mask_search import (
    Annealed,
    MaskRefresh,
    check_share,
    grow_at_random,
    grow_by_gradient,
    keep_masks,
    moved_mask,
    prune_and_grow,
    smallest,
)
from plures.methods import fedspa
from plures.stores.memory import MemoryStore
from tests.helpers.methods import SEED, NormedNetwork, assert_near, copy_of, equal_bits, federation, network
from tests.oracles.common import client_loss, gradient
from tests.oracles.fedspa import next_mask

VALUES = st.sampled_from([0.0, -0.0, 1.0, 1.0, 2.0, -1.5, 1e300, math.inf, -math.inf]) | st.floats(allow_nan=False)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def bits(text):
    return torch.tensor([letter == "1" for letter in text])


def text(mask):
    return "".join(str(int(bit)) for bit in mask)


# Which


@given(values=st.lists(VALUES, min_size=1, max_size=30), data=st.data())
def test_the_smallest_values_are_the_first_of_a_stable_sort(values, data):
    count = data.draw(st.integers(1, len(values)))
    first = set(sorted(range(len(values)), key=lambda place: values[place])[:count])
    assert smallest(numbers(*values), count).tolist() == [place in first for place in range(len(values))]


@given(
    places=st.lists(st.tuples(st.booleans(), VALUES, VALUES), min_size=1, max_size=20),
    rate=st.sampled_from([0.0, 0.07, 0.3, 0.5, 1.0]) | st.floats(0, 1),
)
def test_masks_move_as_in_the_oracle_and_keep_their_ones(places, rate):
    mask, weight, worth = (list(values) for values in zip(*places, strict=True))
    mask, weight, worth = torch.tensor(mask), numbers(*weight).nan_to_num() * torch.tensor(mask), numbers(*worth).abs()
    moved = moved_mask(weight, worth, mask, rate)
    assert moved.sum() == mask.sum()
    assert text(moved) == text(next_mask(mask, weight, worth, rate))


@pytest.mark.parametrize(
    ("mask", "weight", "worth", "rate", "moved"),
    [
        # -0.1 is dropped, the last has the largest gradient.
        ("11010", (3, -0.1, 0, 2, 0), (9, 1, 2, 9, 5), 0.3, "10011"),
        # 0.1 is dropped and comes back, for its gradient is largest.
        ("11010", (3, -0.1, 0, 2, 0), (9, 6, 2, 9, 5), 0.3, "11010"),
        # Weights 1, 1, 1: the first is dropped; gradients 2, 2: the first is taken.
        ("11001", (1, 1, 0, 0, 1), (0, 9, 2, 2, 9), 0.3, "01101"),
        # All three are dropped; the three of most worth are taken, whatever they were.
        ("11100", (1, 2, 3, 0, 0), (1, 5, 2, 4, 3), 1.0, "01011"),
        # ceil(0.34 * 3) = 2, and 1 and 2 are dropped; 0 dropped weights: nothing moves.
        ("11100", (1, 2, 3, 0, 0), (0, 0, 9, 8, 7), 0.34, "00111"),
        ("11100", (1, 2, 3, 0, 0), (0, 0, 9, 8, 7), 0.0, "11100"),
        # A dense tensor is whole again, and one without ones has nothing to move.
        ("11111", (1, 2, 3, 4, 5), (5, 4, 3, 2, 1), 0.5, "11111"),
        ("00000", (0, 0, 0, 0, 0), (5, 4, 3, 2, 1), 0.5, "00000"),
        # A gradient that is no number is worth nothing; an infinite one is worth most.
        ("11000", (1, 2, 0, 0, 0), (0, 0, math.nan, 1, math.nan), 0.5, "01010"),
        ("11000", (1, 2, 0, 0, 0), (0, 0, math.nan, 1, math.inf), 0.5, "01001"),
        ("11000", (1, 2, 0, 0, 0), (math.nan,) * 5, 0.5, "11000"),
    ],
)
def test_masks_by_hand(mask, weight, worth, rate, moved):
    assert text(moved_mask(numbers(*weight), numbers(*worth), bits(mask), rate)) == moved


@pytest.mark.parametrize(("rate", "ones", "count"), [(0.07, 100, 7), (0.28, 25, 7), (0.07001, 100, 8)])
def test_the_number_of_weights_to_drop_is_rounded_up_but_not_from_roundings(rate, ones, count):
    """0.07 * 100 and 0.28 * 25 are 7.000000000000001, by a bit too much."""
    assert math.ceil(rate * ones) == 8
    mask, worth = torch.arange(2 * ones) < ones, torch.arange(2.0 * ones)
    assert (moved_mask(mask.double(), worth, mask, rate) != mask).sum() == 2 * count


def test_masks_of_any_shape_move():
    whole, mask = torch.arange(8.0).reshape(2, 2, 2), torch.ones(2, 2, 2, dtype=torch.bool)
    mask[0, 0, 0] = False
    assert moved_mask(whole, 7 - whole, mask, 0.1).int().flatten().tolist() == [1, 0, 1, 1, 1, 1, 1, 1]
    assert moved_mask(torch.tensor(2.0), torch.tensor(1.0), torch.tensor(True), 0.5).item() is True


# How much


def at(round, rounds):
    return SimpleNamespace(round=round, rounds=rounds)


@pytest.mark.parametrize("rounds", [2, 3, 10, 400, 1000])
def test_the_annealed_rate_falls_from_its_start_in_round_1_to_exactly_zero_in_the_last(rounds):
    rates = [Annealed(start=0.5).rate(at(round, rounds)) for round in range(1, rounds + 1)]
    assert (rates[0], rates[-1]) == (0.5, 0.0)
    assert rates == sorted(rates, reverse=True)
    assert rates == pytest.approx([cosine(0.5, rounds)(round) for round in range(1, rounds + 1)], abs=1e-15)


@pytest.mark.parametrize(("round", "rounds"), [(1, 1), (1, None), (7, None)])
def test_of_one_round_or_of_who_knows_how_many_the_rate_is_its_start(round, rounds):
    assert Annealed(start=0.3).rate(at(round, rounds)) == 0.3


@pytest.mark.parametrize("rate", [-0.1, 1.0000001, math.nan, math.inf])
def test_a_rate_that_is_no_share_is_refused(rate):
    with pytest.raises(InvalidConfig, match="prune_rate in round 3"):
        check_share(rate, round=3)
    with pytest.raises(InvalidConfig, match="prune_rate in round 1"):
        MaskRefresh(search=keep_masks, rate=lambda round: rate)


# The search of a client


def problem_of(client=1, round=1, seed=SEED, module=None, budget=None, **others):
    """What FedSpa's client asks after its phases, with trained weights: its own sparse ones as they arrive."""
    method = fedspa(budget=budget or epochs(2, batch=3), buffers="personal", **others)
    module = network() if module is None else module
    program = Program(method, OneNetwork(module=module), loss=nn.functional.cross_entropy, seed=seed)
    server, population = Server(round=0, shared=program.initial_shared(), optimizer={}), federation()
    visit = make_visit(program, population, MemoryStore(), server, client, round, lone_facts(population, client))
    binding = program.binding(client)
    return Problem(phase=method.local[0], visit=visit, binding=binding, params=arrival(binding, visit))


def weights_of(problem):
    return {name: value.clone() for name, value in problem.params.items() if name in problem.visit.received}


def test_the_worth_of_a_coordinate_is_the_dense_gradient_on_the_first_batch_at_the_sparse_weights():
    problem = problem_of(density=0.5)
    weights, worth = weights_of(problem), grow_by_gradient(problem, weights_of(problem))
    batch = next(problem.batches())
    assert batch.num_examples == 3
    assert_near(worth, {name: value.abs() for name, value in gradient(client_loss, weights, batch).items()})
    off = {name: worth[name][weights[name] == 0] for name in weights}
    assert sum(int(value.count_nonzero()) for value in off.values()) > 5  # dense: also where the masks are zero


def test_a_penalty_has_no_say_in_the_worth():
    problem = problem_of()
    pulled = Problem(**vars(problem) | {"phase": replace(problem.phase, penalty=proximal(3.0))})
    shifted = {name: value + 1 for name, value in weights_of(problem).items()}
    assert_near(grow_by_gradient(pulled, shifted), grow_by_gradient(problem, shifted))


class Dropping(nn.Module):
    """The tiny network with dropout of nearly everything."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.drop = nn.Linear(4, 3), nn.Linear(3, 3), nn.Dropout(0.99)

    def forward(self, inputs):
        return self.head(self.drop(torch.tanh(self.body(inputs))))


def test_the_gradient_of_the_search_is_taken_in_evaluation_mode():
    problem = problem_of(module=network(Dropping), density=0.7)
    problem.binding.task.train(True)
    weights = weights_of(problem)
    expected = gradient(client_loss, weights, next(problem.batches()))
    assert_near(grow_by_gradient(problem, weights), {name: value.abs() for name, value in expected.items()})


def test_the_search_leaves_running_statistics_alone():
    problem = problem_of(module=network(NormedNetwork))
    before = copy_of(problem.params)
    grow_by_gradient(problem, weights_of(problem))
    assert all(equal_bits(value, before[name]) for name, value in problem.params.items())


def test_without_a_batch_nothing_is_worth_anything_and_the_masks_stay():
    problem = problem_of(budget=steps(0))
    assert grow_by_gradient(problem, weights_of(problem)) == {}
    masks = {name: value != 0 for name, value in weights_of(problem).items()}
    assert prune_and_grow(grow_by_gradient)(problem, weights_of(problem), masks, 0.5) == masks


def test_at_a_rate_of_zero_no_gradient_is_taken():
    def never(problem, weights):
        raise AssertionError

    masks = {"a": bits("10")}
    assert prune_and_grow(never)(None, {"a": numbers(1, 0)}, masks, 0.0) == masks
    assert keep_masks(None, {"a": numbers(1, 0)}, masks, 0.5) is masks


@pytest.mark.parametrize("others", [{"client": 2}, {"round": 2}, {"seed": 12}])
def test_random_worth_is_drawn_by_seed_round_and_client(others):
    weights = {"a": torch.zeros(4, 3), "b": torch.zeros(2)}
    first, again, other = (grow_at_random(problem_of(**keys), weights) for keys in ({}, {}, others))
    assert all(torch.equal(first[name], again[name]) for name in weights)
    assert all(first[name].shape == weights[name].shape for name in weights)
    assert not any(torch.equal(first[name], other[name]) for name in weights)


def test_the_masks_of_a_client_are_not_written_into():
    """A search that works in place writes into copies."""

    def turned(problem, weights, masks, rate):
        for mask in masks.values():
            mask.copy_(mask.flip(0))
        return masks

    problem = problem_of(density=0.5)
    before = copy_of(problem.params)
    after = MaskRefresh(search=turned, rate=Annealed(start=0.5))(problem, problem.params)
    assert all(equal_bits(value, before[name]) for name, value in problem.params.items())
    assert any(not torch.equal(after[name], value) for name, value in before.items() if name.startswith("mask."))
    assert all(equal_bits(after[name], value) for name, value in before.items() if not name.startswith("mask."))
