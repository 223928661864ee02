"""Steps in place are those of the optimisers' own pure functions, on touched pieces alone where they ask for that."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plures.core.layout import kernels_by_channels
from plures.core.seeds import generator
from plures.engines.movers import FEW, SgdMover, TouchedMover, can_move, lie_alike, mover_of
from plures.local import adam, sgd
from plures.local.touched import TouchedOnly
from tests.helpers.methods import assert_near

SHAPES = {"kernel": (4, 3, 2, 2), "single": (5, 1, 3, 3), "weight": (3, 40), "bias": (3,), "norm": (2,)}
SPANS = {"kernel": [(0, 10), (10, 48)], "single": [(0, 45)], "weight": [(0, 50), (50, 51), (51, 120)], "bias": [(0, 3)]}
"""The norm is not gated."""
RULES = {
    "plain": sgd(0.1),
    "momentum": sgd(0.1, momentum=0.9),
    "decay": sgd(0.1, weight_decay=0.1),
    "nesterov": sgd(0.1, momentum=0.8, nesterov=True, weight_decay=0.01),
}
UNTOUCHED = [[], ["kernel"], ["weight", "bias"], ["kernel", "single", "weight", "bias"]]
"""Parameters whose last piece has no gradient, step by step."""


def drawn(key: str) -> dict[str, Tensor]:
    draws = generator(0, "test", key)
    return {name: torch.randn(shape, generator=draws, dtype=torch.float64) for name, shape in SHAPES.items()}


def gradients() -> list[dict[str, Tensor]]:
    steps = []
    for number, names in enumerate(UNTOUCHED):
        grads = drawn(f"step {number}")
        for name in names:
            start, stop = SPANS[name][-1]
            grads[name].view(-1)[start:stop] = 0.0
        steps.append(grads)
    return steps


@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("by_channels", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_steps_in_place_are_those_of_the_pure_function(name, by_channels, scale):
    turned = kernels_by_channels if by_channels else dict
    rule = TouchedOnly(rule=RULES[name], spans=SPANS)
    wanted, state = drawn("params"), rule.init(drawn("params"))
    found = {name: value.clone() for name, value in turned(drawn("params")).items()}
    mover = mover_of(rule, list(SHAPES), found, 1)
    assert type(mover) is TouchedMover

    for grads in gradients():
        before = {name: value.clone() for name, value in found.items()}
        scaled = {name: scale * value for name, value in grads.items()}
        wanted, state = rule.update(scaled, state, wanted, 0.1)
        mover.move(list(turned(grads).values()), scale)

        assert_near(found, wanted, 1e-13)
        still = [name for name, spans in SPANS.items() if not any(grads[name].view(-1)[slice(*spans[-1])])]
        for name in still:
            start, stop = SPANS[name][-1]
            assert torch.equal(found[name].reshape(-1)[start:stop], before[name].reshape(-1)[start:stop])
    for past, kept in zip(mover.past, state.get("momentum", {}).values(), strict=True):
        assert torch.allclose(past, kept, rtol=1e-13, atol=0)


def test_where_nothing_is_touched_nothing_moves():
    rule = TouchedOnly(rule=sgd(0.1, momentum=0.9, weight_decay=0.1), spans=SPANS)
    found = {name: value for name, value in drawn("params").items() if name in SPANS}
    mover = mover_of(rule, list(found), found, 1)
    mover.move([torch.zeros_like(value) for value in found.values()], 1.0)
    assert all(torch.equal(found[name], drawn("params")[name]) for name in found)


def test_a_piece_is_touched_by_its_last_entry_alone_and_by_what_is_no_number():
    for value in (1e-300, float("nan")):
        grad = torch.zeros(2 * FEW + 3, dtype=torch.float64)
        grad[-1] = value
        params = {"w": torch.ones(len(grad), dtype=torch.float64)}
        rule = TouchedOnly(rule=sgd(0.1, weight_decay=0.5), spans={"w": [(0, 1), (1, len(grad))]})
        mover_of(rule, ["w"], params, 1).move([grad], 1.0)
        assert params["w"][0] == 1.0
        assert torch.equal(params["w"][1:-1], torch.full((len(grad) - 2,), 0.95, dtype=torch.float64))


def test_the_rate_is_that_of_the_round():
    found = {"w": torch.ones(2)}
    mover = mover_of(sgd(lambda round: 0.1 * round), ["w"], found, 3)
    assert type(mover) is SgdMover
    mover.move([torch.ones(2)], 1.0)
    assert found["w"].tolist() == pytest.approx([0.7, 0.7])


def test_other_rules_are_left_to_the_plain_steps():
    here, elsewhere = [torch.ones(2)], [torch.ones(2, device="meta")]
    gated = TouchedOnly(rule=sgd(0.1), spans={})
    assert can_move(sgd(0.1), here)
    assert can_move(sgd(0.1), elsewhere)
    assert can_move(gated, here)
    assert not can_move(gated, elsewhere)
    assert not can_move(adam(0.1), here)
    assert not can_move(TouchedOnly(rule=adam(0.1), spans={}), here)


@pytest.mark.parametrize("name", ["momentum", "decay", "nesterov"])
@pytest.mark.parametrize("turned", ["params", "grads", "both"])
def test_steps_are_right_whatever_the_memory_order_of_parameters_and_gradients(name, turned):
    rule, params = RULES[name], drawn("params")
    wanted, state = params, rule.init(params)
    found = {key: value.clone() for key, value in params.items()}
    mover = mover_of(rule, list(SHAPES), kernels_by_channels(found) if turned in ("params", "both") else found, 1)
    assert type(mover) is SgdMover

    for grads in gradients():
        wanted, state = rule.update(grads, state, wanted, 0.1)
        given = kernels_by_channels(grads) if turned in ("grads", "both") else grads
        mover.move(list(given.values()), 1.0)

    assert_near(dict(zip(mover.names, mover.values, strict=True)), wanted, 1e-13)


def test_entries_that_lie_in_another_order_are_no_step_for_one_pass():
    kernel = torch.zeros(4, 3, 2, 2)
    turned = kernel.to(memory_format=torch.channels_last)
    single = torch.zeros(5, 1, 3, 3)

    assert lie_alike([kernel], [], [kernel])
    assert lie_alike([turned], [turned], [turned])
    assert not lie_alike([turned], [turned], [kernel])
    assert not lie_alike([kernel], [turned], [kernel])
    # With one channel both orders are the same, whatever their strides say.
    assert lie_alike([single], [], [single.to(memory_format=torch.channels_last)])
    assert not lie_alike([kernel[:, :2]], [], [kernel[:, :2]])  # gaps between entries
    assert not lie_alike([kernel.half()], [], [kernel.half()])
