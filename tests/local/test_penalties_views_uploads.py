"""Penalties with their gradients, twins, and what is sent."""

import pytest
import torch
from torch import nn

from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.networks import Network
from plures.core.types import Batch, Facts
from plures.core.visit import Trained, Visit
from plures.local import add, delta, gradient, original, proximal, pull_to_initial, twin, twin_of, with_twin


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def visit(received=None, initial=None):
    facts = Facts(examples=2, cohort_examples=2, all_examples=4, cohort_clients=1, all_clients=2, inclusion=0.5)
    return Visit(
        client=0,
        round=1,
        seed=0,
        data=Batch(torch.zeros(2, 1), torch.zeros(2)),
        facts=facts,
        received=received or {},
        state={},
        begin=lambda: initial or {},
    )


def test_proximal_is_half_the_strength_times_the_squared_distance():
    # |(3, 1) - (1, 1)|^2 + |5 - 4|^2 = 4 + 1; times 0.2 / 2.
    params = {"a": numbers(3, 1), "b": numbers(5), "kept": numbers(100)}
    value = proximal(0.2)(params, visit(received={"a": numbers(1, 1), "b": numbers(4)}))
    assert value.item() == pytest.approx(0.5, rel=1e-14)


def test_proximal_without_the_half_is_twice_as_much():
    value = proximal(0.2, half=False)({"a": numbers(3)}, visit(received={"a": numbers(1)}))
    assert value.item() == pytest.approx(0.8, rel=1e-14)


def test_the_gradient_of_proximal_is_the_strength_times_the_way_from_received():
    weight, received = numbers(3, -1).requires_grad_(), numbers(1, 1)
    proximal(0.5)({"a": weight}, visit(received={"a": received})).backward()
    assert weight.grad.tolist() == [1.0, -1.0]


def test_proximal_of_twins_holds_the_twin_and_not_the_original():
    # The twin is 2 away: 1/2 * 2^2. The running statistics have no twin, the counter no distance.
    params = {"a": numbers(7), "twin.a": numbers(3), "mean": numbers(9), "seen": torch.tensor(4)}
    received = {"a": numbers(1), "mean": numbers(0), "seen": torch.tensor(0)}
    assert proximal(1.0, of=twin_of)(params, visit(received=received)).item() == 2.0


def test_counters_are_not_pulled():
    params = {"a": numbers(3), "seen": torch.tensor(4)}
    received = {"a": numbers(1), "seen": torch.tensor(0)}
    assert proximal(1.0)(params, visit(received=received)).item() == 2.0


def test_pull_to_initial_has_no_half():
    # 0.25 * (3 - 1)^2 = 1, and the gradient is 2 * 0.25 * 2 = 1.
    value = numbers(3).requires_grad_()
    penalty = pull_to_initial(0.25)({"v": value, "w": numbers(50)}, visit(initial={"v": numbers(1)}))
    penalty.backward()
    assert (penalty.item(), value.grad.item()) == (1.0, 1.0)


def test_penalties_add():
    params = {"w": numbers(3), "v": numbers(2)}
    here = visit(received={"w": numbers(1)}, initial={"v": numbers(0)})
    both = add(proximal(1.0), pull_to_initial(0.5))
    assert both(params, here).item() == 2.0 + 2.0
    assert both == add(proximal(1.0), pull_to_initial(0.5))
    assert hash(both) == hash(add(proximal(1.0), pull_to_initial(0.5)))


@pytest.mark.parametrize("penalty", [proximal(1.0), pull_to_initial(1.0), add()])
def test_a_penalty_on_nothing_is_zero(penalty):
    assert penalty({"w": numbers(3)}, visit()).item() == 0.0


@pytest.mark.parametrize("make", [proximal, pull_to_initial])
def test_a_negative_strength_is_refused(make):
    with pytest.raises(InvalidConfig, match="strength"):
        make(-0.1)


def test_delta_is_received_minus_trained_for_the_shared_names():
    here = visit(received={"a": numbers(5, 1), "mean": numbers(8)})
    upload = delta(here, Trained({"a": numbers(2, 3)}, {"a": numbers(9, 9)}, {}))
    assert {name: value.tolist() for name, value in upload.values.items()} == {"a": [3.0, -2.0]}
    assert upload.held is None


def test_gradient_is_what_was_observed():
    upload = gradient(visit(received={"a": numbers(5)}), Trained({"a": numbers(2)}, {"a": numbers(9)}, {}))
    assert {name: value.tolist() for name, value in upload.values.items()} == {"a": [9.0]}


def bare(params, parts):
    return Network(module=nn.Module(), params=params, parts=parts)


def test_twins_start_equal_but_apart():
    own = {"a": numbers(1, 2).requires_grad_(), "b": numbers(3)}
    twins = with_twin(bare(own, dict.fromkeys(own, "shared")))["personal"]
    assert list(twins) == ["twin.a", "twin.b"] == [twin_of("a"), twin_of("b")]
    assert twins["twin.a"].tolist() == [1.0, 2.0]
    assert not twins["twin.a"].requires_grad
    twins["twin.b"].zero_()
    assert own["b"].item() == 3.0


def test_what_its_owner_froze_has_no_twin():
    twins = with_twin(bare({"a": numbers(1), "b": numbers(2)}, {"a": "frozen", "b": "shared"}))["personal"]
    assert list(twins) == ["twin.b"]


def test_the_network_sees_the_twin_or_the_original():
    params = {"a": numbers(1), "mean": numbers(5), "twin.a": numbers(2)}
    seen = {name: value.item() for name, value in twin(params, numbers()).items()}
    assert seen == {"a": 2.0, "mean": 5.0}
    seen = {name: value.item() for name, value in original(params, numbers()).items()}
    assert seen == {"a": 1.0, "mean": 5.0}


def test_a_module_that_is_called_twin_is_refused():
    with pytest.raises(InvalidModel, match=r"twin\.weight"):
        with_twin(bare({"twin.weight": numbers(1)}, {"twin.weight": "shared"}))
