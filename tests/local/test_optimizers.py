"""SGD, Adam and clipping against torch's own, and under vmap."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import vmap

from plures.core.errors import InvalidConfig
from plures.core.seeds import generator
from plures.local import OPTIMIZERS, adam, as_optimizer, clip_by_norm, constant, cosine, sgd
from plures.local.optimizers import Adam, Sgd

TIGHT = {"rtol": 1e-12, "atol": 1e-14}
"""Float64: a few roundings per step, over a few steps."""

SHAPES = {"weight": (3, 4), "bias": (3,), "scalar": ()}
LR = 0.05

PAIRS = {
    "plain": (sgd(LR), torch.optim.SGD, {}),
    "weight decay": (sgd(LR, weight_decay=0.1), torch.optim.SGD, {"weight_decay": 0.1}),
    "momentum": (sgd(LR, momentum=0.9), torch.optim.SGD, {"momentum": 0.9}),
    "momentum and decay": (
        sgd(LR, momentum=0.9, weight_decay=5e-4),
        torch.optim.SGD,
        {"momentum": 0.9, "weight_decay": 5e-4},
    ),
    "nesterov": (
        sgd(LR, momentum=0.8, nesterov=True, weight_decay=0.01),
        torch.optim.SGD,
        {"momentum": 0.8, "nesterov": True, "weight_decay": 0.01},
    ),
    "adam": (adam(LR), torch.optim.Adam, {}),
    "adam with other betas": (
        adam(LR, betas=(0.5, 0.9), eps=1e-3),
        torch.optim.Adam,
        {"betas": (0.5, 0.9), "eps": 1e-3},
    ),
    "adam without memory": (adam(LR, betas=(0.0, 0.0)), torch.optim.Adam, {"betas": (0.0, 0.0)}),
    "adam with decay": (adam(LR, weight_decay=0.1), torch.optim.Adam, {"weight_decay": 0.1}),
}

cases = pytest.mark.parametrize("case", sorted(PAIRS))


def draw(key, dtype=torch.float64, clients=()):
    draws = generator(0, "test", key)
    return {name: torch.randn((*clients, *shape), generator=draws, dtype=dtype) for name, shape in SHAPES.items()}


def run(rule, params, gradients):
    state = rule.init(params)
    for grads in gradients:
        params, state = rule.update(grads, state, params, LR)
    return params, state


@cases
def test_eight_steps_are_those_of_torch(case):
    rule, torch_rule, options = PAIRS[case]
    start, gradients = draw("start"), [draw(step) for step in range(8)]
    leaves = {name: value.clone().requires_grad_() for name, value in start.items()}
    reference = torch_rule(leaves.values(), lr=LR, **options)
    for grads in gradients:
        for name, leaf in leaves.items():
            leaf.grad = grads[name].clone()
        reference.step()
    moved, _ = run(rule, start, gradients)
    for name, leaf in leaves.items():
        assert not torch.equal(moved[name], start[name])
        torch.testing.assert_close(moved[name], leaf.detach(), **TIGHT)


@cases
def test_an_update_changes_none_of_its_arguments(case):
    rule = PAIRS[case][0]
    params, grads = draw("start"), draw("gradient")
    _, state = run(rule, params, [grads])
    kept = [{name: value.clone() for name, value in group.items()} for group in (params, grads, *state.values())]
    rule.update(grads, state, params, LR)
    for before, after in zip(kept, (params, grads, *state.values()), strict=True):
        assert all(torch.equal(before[name], after[name]) for name in before)


@cases
def test_vmap_over_clients_gives_what_each_client_gets_alone(case):
    rule, clients = PAIRS[case][0], 3
    start = draw("start", clients=(clients,))
    gradients = [draw(step, clients=(clients,)) for step in range(4)]
    params, state = start, vmap(rule.init)(start)
    for grads in gradients:
        params, state = vmap(rule.update, in_dims=(0, 0, 0, None))(grads, state, params, LR)
    for client in range(clients):
        alone, _ = run(rule, pick_client(start, client), [pick_client(grads, client) for grads in gradients])
        for name, value in alone.items():
            torch.testing.assert_close(params[name][client], value, **TIGHT)


def pick_client(stacked, client):
    return {name: value[client] for name, value in stacked.items()}


@cases
def test_single_precision_stays_single(case):
    params = draw("start", torch.float32)
    moved, state = run(PAIRS[case][0], params, [draw("gradient", torch.float32)])
    assert {value.dtype for value in moved.values()} == {torch.float32}
    tensors = {value.dtype for kind, group in state.items() if kind != "count" for value in group.values()}
    assert tensors <= {torch.float32}


@cases
def test_rate_zero_moves_nothing(case):
    rule, params = PAIRS[case][0], draw("start")
    moved, _ = rule.update(draw("gradient"), rule.init(params), params, 0.0)
    assert all(torch.equal(moved[name], params[name]) for name in params)


def test_plain_sgd_keeps_no_state_and_subtracts_the_gradient():
    # 1 - 0.5 * 3 = -0.5, exactly.
    rule = sgd(0.5)
    params = {"w": torch.tensor([1.0], dtype=torch.float64)}
    moved, state = rule.update({"w": torch.tensor([3.0], dtype=torch.float64)}, rule.init(params), params, 0.5)
    assert moved["w"].tolist() == [-0.5]
    assert state == {}


def test_momentum_by_hand():
    # Gradients 1 and 1, momentum 0.5: velocities 1 and 1.5; lr 1 moves 0 to -1 and then to -2.5.
    rule, params, ones = sgd(1.0, momentum=0.5), {"w": torch.zeros(1)}, {"w": torch.ones(1)}
    first, state = rule.update(ones, rule.init(params), params, 1.0)
    second, state = rule.update(ones, state, first, 1.0)
    assert (first["w"].item(), second["w"].item(), state["momentum"]["w"].item()) == (-1.0, -2.5, 1.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_first_adam_step_is_the_rate_against_the_sign(dtype):
    # After one step first / (1 - beta1) = g and second / (1 - beta2) = g^2: the move is lr g / (|g| + eps).
    grads = {"w": torch.tensor([2.0, -0.5, 1e-3], dtype=dtype)}
    params = {"w": torch.zeros(3, dtype=dtype)}
    moved, state = run(adam(LR), params, [grads])
    expected = -LR * grads["w"] / (grads["w"].abs() + 1e-8)
    torch.testing.assert_close(moved["w"], expected, rtol=1e-6 if dtype == torch.float32 else 1e-12, atol=0.0)
    assert state["count"][""].item() == 1


def test_adam_without_gradients_stays_where_it_is():
    params = draw("start")
    zeros = {name: torch.zeros_like(value) for name, value in params.items()}
    moved, _ = run(adam(LR), params, [zeros] * 5)
    assert all(torch.equal(moved[name], params[name]) for name in params)


def test_optimizers_move_nothing_if_there_is_nothing():
    for rule in (sgd(LR, momentum=0.9), adam(LR)):
        assert rule.update({}, rule.init({}), {}, LR)[0] == {}


@pytest.mark.parametrize("max_norm", [0.1, 1.0, 1e6])
def test_clipping_is_that_of_torch(max_norm):
    grads = draw("gradient")
    leaves = [torch.nn.Parameter(torch.zeros_like(grad)) for grad in grads.values()]
    for leaf, grad in zip(leaves, grads.values(), strict=True):
        leaf.grad = grad.clone()
    torch.nn.utils.clip_grad_norm_(leaves, max_norm)
    for leaf, clipped in zip(leaves, clip_by_norm(grads, max_norm).values(), strict=True):
        torch.testing.assert_close(clipped, leaf.grad, **TIGHT)


def test_clipping_is_joint_over_all_tensors():
    # (3) and (4) have the joint norm 5: a limit of 1 divides both by 5 (and 1e-6, as torch does).
    clipped = clip_by_norm({"a": torch.tensor([3.0]).double(), "b": torch.tensor([4.0]).double()}, 1.0)
    assert [clipped["a"].item(), clipped["b"].item()] == pytest.approx([3 / 5, 4 / 5], rel=1e-6)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_clipping_never_leaves_a_larger_norm_and_never_enlarges(size, max_norm):
    grads = {name: size * value for name, value in draw("gradient").items()}
    clipped = clip_by_norm(grads, max_norm)
    norm = math.sqrt(sum(value.square().sum().item() for value in clipped.values()))
    before = math.sqrt(sum(value.square().sum().item() for value in grads.values()))
    assert norm <= min(max_norm, before) * (1 + 1e-12)


def test_clipping_under_vmap_clips_each_client_by_itself():
    stacked = draw("gradient", clients=(4,))
    together = vmap(clip_by_norm, in_dims=(0, None))(stacked, 2.0)
    for client in range(4):
        alone = clip_by_norm(pick_client(stacked, client), 2.0)
        for name, value in alone.items():
            torch.testing.assert_close(together[name][client], value, **TIGHT)


def test_as_optimizer_takes_rates_schedules_and_optimizers():
    rate, rule = cosine(0.1, rounds=5), adam(0.1)
    assert as_optimizer(0.1) == Sgd(lr=constant(0.1))
    assert as_optimizer(rate) == Sgd(lr=rate)
    assert as_optimizer(rule) is rule


def test_the_rate_of_an_optimizer_follows_its_schedule():
    assert sgd(0.1).lr(9) == 0.1
    assert adam(cosine(0.1, rounds=5)).lr(3) == pytest.approx(0.05, rel=1e-12)


def test_optimizers_are_values_and_registered():
    assert hash(sgd(0.1, momentum=0.9)) == hash(sgd(0.1, momentum=0.9))
    assert adam(0.1, betas=[0.9, 0.999]) == adam(0.1)
    assert (OPTIMIZERS["sgd"], OPTIMIZERS["adam"], len(OPTIMIZERS)) == (sgd, adam, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sgd(-0.1),
        lambda: sgd(math.nan),
        lambda: sgd(0.1, momentum=1.0),
        lambda: sgd(0.1, momentum=-0.1),
        lambda: sgd(0.1, nesterov=True),
        lambda: sgd(0.1, weight_decay=-1e-4),
        lambda: Sgd(lr=0.1),
        lambda: adam(math.inf),
        lambda: adam(0.1, betas=(0.9, 1.0)),
        lambda: adam(0.1, betas=(-0.1, 0.9)),
        lambda: adam(0.1, betas=(0.9, 0.99, 0.999)),
        lambda: adam(0.1, eps=0.0),
        lambda: adam(0.1, weight_decay=math.nan),
        lambda: Adam(lr=0.1),
        lambda: as_optimizer("sgd"),
        lambda: as_optimizer(None),
    ],
)
def test_impossible_options_are_refused(make):
    with pytest.raises(InvalidConfig):
        make()
