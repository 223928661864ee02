"""FedAdam, FedYogi and FedAdagrad: their first steps by hand."""

import math

import pytest
import torch
from torch.func import vmap

from plures.core.errors import InvalidConfig
from plures.server import SERVER_OPTIMIZERS, fedadagrad, fedadam, fedyogi
from plures.server.optimizers import FedAdam

LR = 0.1
rules = pytest.mark.parametrize("make", [fedadam, fedyogi, fedadagrad])


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def path(rule, gradients, start=1.0):
    """The parameter and the second moment after each of some gradients."""
    params = {"w": numbers(start)}
    state, found = rule.init(params), []
    for gradient in gradients:
        params, state = rule.update({"w": numbers(gradient)}, state, params, LR)
        found.append((params["w"].item(), state["second"]["w"].item()))
    return found


def test_fedadam_by_hand():
    # g = 2: first = 0.1 * -2 = -0.2, second = 0.01 * 4 = 0.04.
    # g = 1: first = 0.9 * -0.2 - 0.1 = -0.28, second = 0.99 * 0.04 + 0.01 = 0.0496.
    one = 1 - LR * 0.2 / (0.2 + 1e-3)
    two = one - LR * 0.28 / (math.sqrt(0.0496) + 1e-3)
    assert path(fedadam(LR), [2, 1]) == [
        pytest.approx((one, 0.04), rel=1e-12),
        pytest.approx((two, 0.0496), rel=1e-12),
    ]


def test_fedyogi_by_hand():
    # The second moment moves by 0.01 g^2 towards g^2: up by 0.04, up by 0.01, then (0.1^2 < 0.05) down by 0.0001.
    seconds = [0.04, 0.05, 0.0499]
    firsts = [-0.2, -0.28, -0.262]
    expected, weight = [], 1.0
    for first, second in zip(firsts, seconds, strict=True):
        weight += LR * first / (math.sqrt(second) + 1e-3)
        expected.append(pytest.approx((weight, second), rel=1e-12))
    assert path(fedyogi(LR), [2, 1, 0.1]) == expected


def test_fedadagrad_by_hand():
    # No momentum; second moments 4 and 4 + 1.
    one = 1 - LR * 2 / (2 + 1e-3)
    two = one - LR * 1 / (math.sqrt(5) + 1e-3)
    assert path(fedadagrad(LR), [2, 1]) == [pytest.approx((one, 4.0), rel=1e-12), pytest.approx((two, 5.0), rel=1e-12)]


def test_fedadagrad_with_momentum_by_hand():
    # first = 0.1 * -2 = -0.2.
    (moved, second), *_ = path(fedadagrad(LR, beta1=0.9), [2])
    assert (moved, second) == pytest.approx((1 - LR * 0.2 / 2.001, 4.0), rel=1e-12)


def test_the_second_moment_can_start_at_the_square_of_tau():
    # As the paper asks: second = 0.99 * 1e-6 + 0.01 * 4.
    (_, second), *_ = path(fedadam(LR, initial_second=1e-6), [2])
    assert second == pytest.approx(0.04 + 0.99e-6, rel=1e-12)


def test_fedyogi_lowers_a_second_moment_that_starts_above_the_square():
    # 1 - 0.01 * 0.25.
    (_, second), *_ = path(fedyogi(LR, initial_second=1.0), [0.5])
    assert second == pytest.approx(0.9975, rel=1e-12)


@rules
def test_without_gradients_nothing_moves(make):
    assert [weight for weight, _ in path(make(LR), [0, 0, 0])] == [1.0, 1.0, 1.0]


@rules
def test_the_server_moves_against_the_gradient(make):
    up, down = path(make(LR), [-2])[0][0], path(make(LR), [2])[0][0]
    assert down < 1.0 < up
    assert up - 1.0 == pytest.approx(1.0 - down, rel=1e-12)


@rules
def test_an_update_changes_none_of_its_arguments(make):
    rule, params, grads = make(LR), {"w": numbers(1, 2)}, {"w": numbers(3, -4)}
    params, state = rule.update(grads, rule.init(params), params, LR)
    kept = [value["w"].clone() for value in (grads, params, state["first"], state["second"])]
    rule.update(grads, state, params, LR)
    after = [value["w"] for value in (grads, params, state["first"], state["second"])]
    assert all(torch.equal(before, now) for before, now in zip(kept, after, strict=True))


@rules
def test_vmap_gives_what_each_gets_alone(make):
    rule, params, grads = make(LR), {"w": numbers(1, 2, 3)}, {"w": numbers(3, -4, 0.5)}
    state = vmap(rule.init)(params)
    moved, _ = vmap(rule.update, in_dims=(0, 0, 0, None))(grads, state, params, LR)
    alone, _ = rule.update(grads, rule.init(params), params, LR)
    torch.testing.assert_close(moved["w"], alone["w"], rtol=1e-14, atol=0.0)


@rules
def test_the_rate_may_be_a_schedule(make):
    assert make(lambda round: 0.5 / round).lr(2) == 0.25
    assert make(0.3).lr(2) == 0.3


def test_server_optimizers_are_values_and_registered():
    assert fedadam(0.1) == fedadam(0.1) != fedadam(0.2)
    assert hash(fedyogi(0.1)) == hash(fedyogi(0.1))
    assert list(SERVER_OPTIMIZERS.items()) == [("fedadam", fedadam), ("fedyogi", fedyogi), ("fedadagrad", fedadagrad)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: fedadam(-0.1),
        lambda: fedadam(0.1, beta1=1.0),
        lambda: fedadam(0.1, beta2=1.0),
        lambda: fedyogi(0.1, beta2=-0.5),
        lambda: fedyogi(0.1, tau=0.0),
        lambda: fedadagrad(0.1, initial_second=-1.0),
        lambda: fedadagrad(math.nan),
        lambda: FedAdam(lr=0.1),
    ],
)
def test_impossible_options_are_refused(make):
    with pytest.raises(InvalidConfig):
        make()
