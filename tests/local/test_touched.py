"""Optimisers that leave untouched pieces alone: bit for bit, and with their momentum."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plures.core.seeds import generator
from plures.local import adam, sgd
from plures.local.touched import TouchedOnly, touched
from tests.helpers.methods import same_bits

LR = 0.1
SHAPES = {"weight": (3, 4), "bias": (3,), "norm": (2,)}
SPANS = {"weight": [(0, 5), (5, 6), (6, 12)], "bias": [(0, 3)]}
"""The norm has no pieces: it is not gated."""
RULES = {
    "plain": sgd(LR),
    "momentum": sgd(LR, momentum=0.9),
    "weight decay": sgd(LR, weight_decay=0.1),
    "momentum and decay": sgd(LR, momentum=0.9, weight_decay=5e-4),
    "nesterov": sgd(LR, momentum=0.8, nesterov=True, weight_decay=0.01),
    "adam": adam(LR, weight_decay=0.1),
}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
moving = pytest.mark.parametrize(
    "rule", [rule for name, rule in RULES.items() if name != "plain"], ids=[name for name in RULES if name != "plain"]
)


def draw(key):
    draws = generator(0, "test", key)
    return {name: torch.randn(shape, generator=draws, dtype=torch.float64) for name, shape in SHAPES.items()}


def only(rule):
    return TouchedOnly(rule=rule, spans=SPANS)


def stepped(rule, params, state, *gradients):
    for grads in gradients:
        params, state = rule.update(grads, state, params, LR)
    return params, state


def without(grads, name, start, stop):
    """Gradients with zeros in one piece."""
    flat = grads[name].flatten().clone()
    flat[start:stop] = 0.0
    return grads | {name: flat.reshape(grads[name].shape)}


@rules
def test_where_everything_is_touched_it_is_the_optimiser_itself(rule):
    params, gradients = draw("params"), [draw(f"step {step}") for step in range(4)]
    own, plain = (stepped(one, params, one.init(params), *gradients) for one in (only(rule), rule))
    assert same_bits(own[0], plain[0])
    assert own[1].keys() == plain[1].keys()
    assert all(same_bits(own[1][group], plain[1][group]) for group in plain[1])


@moving
def test_an_untouched_piece_keeps_its_values_and_its_momentum_bit_for_bit(rule):
    params, state = stepped(only(rule), draw("params"), rule.init(draw("params")), draw("first"), draw("second"))
    grads = without(without(draw("third"), "weight", 6, 12), "bias", 0, 3)
    after, after_state = only(rule).update(grads, state, params, LR)
    moved, moved_state = rule.update(grads, state, params, LR)
    assert not torch.equal(moved["weight"].flatten()[6:], params["weight"].flatten()[6:])
    assert same_bits(after, partly(moved, params))
    assert after_state.keys() == state.keys()
    for group, tensors in moved_state.items():
        counted = "weight" not in tensors  # Adam's count of steps is of no parameter
        assert same_bits(after_state[group], tensors if counted else partly(tensors, state[group]))


def partly(moved, before):
    """The last piece of the weight and the bias as they were before."""
    weight = torch.cat([moved["weight"].flatten()[:6], before["weight"].flatten()[6:]]).reshape(3, 4)
    return moved | {"weight": weight, "bias": before["bias"]}


def test_momentum_and_decay_by_hand_over_three_steps():
    """Two pieces of one entry, rate 0.1, momentum 0.5, decay 0.1; the second has no gradient in step 2.

    First: v = 1 + 0.1 * 1 = 1.1, value 0.89; v = 0.55 + 1 + 0.089 = 1.639, value 0.7261; v = 0.8195 + 1 + 0.07261.
    Second: v = 2.2, value 1.78; still; v = 1.1 + 2 + 0.178 = 3.278, value 1.4522.
    """
    rule = TouchedOnly(rule=sgd(0.1, momentum=0.5, weight_decay=0.1), spans={"w": [(0, 1), (1, 2)]})
    params = {"w": torch.tensor([1.0, 2.0], dtype=torch.float64)}
    steps = [{"w": torch.tensor(values, dtype=torch.float64)} for values in ([1.0, 2.0], [1.0, 0.0], [1.0, 2.0])]
    state = rule.init(params)
    seen = []
    for grads in steps:
        params, state = rule.update(grads, state, params, 0.1)
        seen.append(params["w"].tolist())
    assert seen[0] == pytest.approx([0.89, 1.78], rel=1e-14)
    assert seen[1] == pytest.approx([0.7261, 1.78], rel=1e-14)
    assert seen[2] == pytest.approx([0.7261 - 0.189211, 1.4522], rel=1e-14)
    assert state["momentum"]["w"].tolist() == pytest.approx([1.89211, 3.278], rel=1e-14)


def test_one_entry_that_moves_touches_its_whole_piece():
    params = draw("params")
    grads = {name: torch.zeros_like(value) for name, value in params.items()}
    grads["weight"][0, 1] = 1.0
    rule = sgd(LR, weight_decay=0.5)
    after, _ = only(rule).update(grads, {}, params, LR)
    moved = (after["weight"] != params["weight"]).flatten()
    assert moved.tolist() == [True] * 5 + [False] * 7
    assert torch.equal(after["bias"], params["bias"])
    assert torch.equal(after["norm"], params["norm"] - LR * 0.5 * params["norm"])


def test_a_gradient_that_is_no_number_counts_as_touched():
    change = torch.tensor([0.0, float("nan"), 0.0, -0.0])
    assert touched(change, [(0, 2), (2, 4)]).tolist() == [True, True, False, False]


@given(st.lists(st.lists(st.sampled_from([0.0, -0.0, 1e-300, -2.0]), min_size=1, max_size=4), min_size=1, max_size=6))
def test_touched_pieces_are_those_with_anything_in_them(pieces):
    values = [value for piece in pieces for value in piece]
    ends = [sum(len(piece) for piece in pieces[:number]) for number in range(len(pieces) + 1)]
    found = touched(torch.tensor(values, dtype=torch.float64)[:, None], list(itertools.pairwise(ends)))
    assert found.shape == (len(values), 1)
    assert found.flatten().tolist() == [any(value != 0 for value in piece) for piece in pieces for _ in piece]


def test_it_starts_and_is_scheduled_as_the_optimiser_itself():
    rule, params = RULES["adam"], draw("params")
    assert only(rule).lr is rule.lr
    assert only(rule).init(params).keys() == rule.init(params).keys()
