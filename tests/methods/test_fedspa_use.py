"""FedSpa in use: searches of one's own, clients of different capacities, evaluation of the dense model."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import plures
from plures.core.errors import ClientFailed
from plures.core.method import common_start
from plures.data import digits_federation
from plures.local.mask_search import prune_and_grow
from plures.local.masks import masks_in
from plures.methods import fedspa
from plures.models import mlp
from tests.helpers.methods import assert_same_bits, play, same_bits
from tests.methods.test_fedspa import BUDGET, sparse

# Searches of one's own


def test_a_search_of_ones_own_is_a_function_from_weights_and_masks_to_masks():
    """It moves every mask one place on, in rounds whose rate is not 0: in two of three."""
    asked = []

    def next_place(problem, weights, masks, rate):
        asked.append((problem.visit.client, problem.visit.round, rate))
        assert all(not weights[name][~mask].any() for name, mask in masks.items())
        return {name: mask.roll(1) if rate else mask for name, mask in masks.items()}

    run = sparse(3, search=next_place)
    for name, mask in run.final[4].items():
        assert torch.equal(mask, run.states[0][4][name].roll(2))
    assert asked == [(client, round, [0.5, 0.25, 0.0][round - 1]) for round in (1, 2, 3) for client in range(5)]


def test_a_worth_of_ones_own_replaces_the_gradient():
    """By the gradient itself the masks are those of "dst"; by its opposite they are others."""

    def gradient(problem, weights):
        batch = next(problem.batches())
        loss = lambda watched: problem.binding.task.loss(problem.params | watched, batch)  # noqa: E731
        return {name: value.abs() for name, value in torch.func.grad(loss)(weights).items()}

    def opposite(problem, weights):
        return {name: -value for name, value in gradient(problem, weights).items()}

    usual, own, other = sparse(), sparse(search=prune_and_grow(gradient)), sparse(search=prune_and_grow(opposite))
    assert all(same_bits(usual.final[client], own.final[client]) for client in range(5))
    assert not any(same_bits(usual.final[client], other.final[client]) for client in range(5))


def test_a_search_may_give_fewer_ones_and_the_client_sends_less():
    """Each visit takes the first one of every mask away: 4 tensors, 5 clients, a value each."""

    def shrink(problem, weights, masks, rate):
        return {name: mask & (mask.flatten().cumsum(0).reshape(mask.shape) > 1) for name, mask in masks.items()}

    values = [report.values_up for report in sparse(3, search=shrink).reports]
    assert values == [values[0], values[0] - 20, values[0] - 40]


def all_ones(problem, weights, masks, rate):
    return {name: torch.ones_like(mask) for name, mask in masks.items()}


def in_place(problem, weights, masks, rate):
    for mask in masks.values():
        mask.fill_(True)
    return masks


def one_less(problem, weights, masks, rate):
    return {name: mask for name, mask in masks.items() if name != "head.bias"}


def numbers(problem, weights, masks, rate):
    return {name: mask.double() for name, mask in masks.items()}


def flat(problem, weights, masks, rate):
    return {name: mask.flatten() for name, mask in masks.items()}


def breaks(problem, weights, masks, rate):
    return {name: masks[f"mask.{name}"] for name in masks}


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (all_ones, r"gives 'body\.weight' 12 ones, but it had 5"),
        (in_place, r"gives 'body\.weight' 12 ones, but it had 5"),
        (one_less, r"masks of \['body\.bias', 'body\.weight', 'head\.weight'\], but it was given"),
        (numbers, r"as torch\.float64 of shape \(3, 4\), not as bool of shape \(3, 4\)"),
        (flat, r"as torch\.bool of shape \(12,\), not as bool of shape \(3, 4\)"),
        (breaks, r"KeyError: 'mask\.body\.weight'"),
    ],
)
def test_a_search_that_gives_other_masks_than_it_may_is_refused_with_client_and_round(search, words):
    """ERK at 0.6 gives body.weight 16.2 / 19 * 7 / 12 * 12 = 5.97 ones, rounded down."""
    with pytest.raises(ClientFailed, match=rf"{words}.*\(client client 0, round 1, phase refresh\)"):
        sparse(1, search=search)


def test_the_search_on_the_page_of_the_method_moves_masks_in_every_tenth_round():
    page = Path(__file__).parents[2] / "docs/methods/fedspa.md"
    (block,) = re.findall(r"^```py\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found: dict = {}
    exec(block, found)
    run = sparse(11, search=found["now_and_then"])
    moved = [not same_bits(before[0], after[0]) for before, after in itertools.pairwise(run.states)]
    assert moved == [False] * 9 + [True, False]


# Capacities


CAPACITIES = [0.4, 0.6, 0.75, 1.0, 0.6]


def with_capacities(method):
    return play(method, 3, capacity_of=CAPACITIES.__getitem__)


@pytest.mark.parametrize("densities", ["erk", "uniform"])
def test_clients_of_different_capacities_have_nested_masks_of_their_densities(densities):
    method = fedspa(lr=0.3, budget=BUDGET, densities=densities)
    run = with_capacities(method)
    sizes = {client: run.program.sizes(client) for client in range(5)}
    first, last = ({i: masks_in(state) for i, state in states.items()} for states in (run.states[0], run.final))
    for client, capacity in enumerate(CAPACITIES):
        for masks in (first[client], last[client]):
            assert {name: int(mask.sum()) for name, mask in masks.items()} == sizes[client]
        assert sum(sizes[client].values()) <= 27 * capacity
    for smaller, larger in ((0, 1), (1, 2), (2, 3)):
        assert all(not (mask & ~first[larger][name]).any() for name, mask in first[smaller].items())
        assert sum(sizes[smaller].values()) < sum(sizes[larger].values())
    assert_same_bits(first[1], first[4])
    assert all(mask.all() for mask in last[3].values())
    ones = sum(int(mask.sum()) for masks in first.values() for mask in masks.values())
    for report in run.reports:
        assert (report.values_down, report.values_up, report.used) == (ones, ones, 1.0)


def test_a_client_that_uses_more_than_its_capacity_is_refused():
    """It has all 27 weights. ERK at 0.4: 10.8 / 19 of 7, 3, 6 and 3, that is 3.98, 1.7, 3.4 and 1.7, rounded down."""
    dense = replace(fedspa(lr=0.3, budget=BUDGET), start=common_start)
    with pytest.raises(ClientFailed, match=r"uses 27 and uploads 27 values, but its capacity is 8 "):
        with_capacities(dense)


# Evaluation


def test_the_dense_model_can_be_evaluated_beside_the_personal_ones():
    result = plures.run(
        fedspa(lr=0.2, density=0.3),
        digits_federation(num_clients=6, classes_per_client=2, seed=0),
        mlp,
        rounds=3,
        evaluation=plures.EvaluationPlan(models=("global", "personal")),
    )
    assert result.headline == "personal"
    losses = [result.metrics[f"{model}/test/loss"] for model in ("global", "personal")]
    assert losses[0] != losses[1]
