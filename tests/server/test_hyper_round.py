"""The step of a hypernetwork's round: one of the optimiser on the hypernetwork and on some clients' embeddings."""

from __future__ import annotations

import pytest
import torch

from plures.core.errors import InvalidConfig
from plures.local import adam, sgd
from plures.server import fedadagrad, fedadam, fedyogi
from plures.server.hyper_round import HyperRound, joint_step
from plures.server.hypernetwork import EMBEDDING, Hypernetwork
from tests.helpers.methods import assert_same_bits, copy_of

RULES = {
    "plain": sgd(0.1),
    "sgd": sgd(0.1, momentum=0.9, weight_decay=0.1),
    "adam": adam(0.1),
    "fedadam": fedadam(0.1, initial_second=0.01),
    "fedyogi": fedyogi(0.1),
    "fedadagrad": fedadagrad(0.1),
}
SEATS = {4: "hyper.embedding of 4", 1: "hyper.embedding of 1"}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def drawn(draws, *shape):
    return torch.randn(shape, generator=draws, dtype=torch.float64)


def begun(rule, draws):
    """A hypernetwork, its optimiser's state, and clients 4 and 1 with a personal part each."""
    hyper = {"hyper.body.0.weight": drawn(draws, 3, 2), "hyper.body.0.bias": drawn(draws, 3)}
    keep = Hypernetwork(rule=rule).kept
    states = {client: {"own": drawn(draws, 2), **keep(drawn(draws, 2))} for client in (4, 1)}
    return hyper, rule.init(hyper), states


def gradient_of(hyper, draws):
    shapes = {name: value.shape for name, value in hyper.items()} | dict.fromkeys(SEATS.values(), (2,))
    return {name: drawn(draws, *shape) for name, shape in shapes.items()}


@rules
def test_a_step_is_the_optimisers_own_on_all_that_moves_in_it(rule):
    """Three steps, so that there is a momentum; the rule by itself, on one flat set of parameters, is the same."""
    draws = torch.Generator().manual_seed(5)
    hyper, memory, states = begun(rule, draws)
    flat = hyper | {seat: states[client][EMBEDDING] for client, seat in SEATS.items()}
    flat_memory = rule.init(flat)
    own = {client: state["own"] for client, state in states.items()}
    for _ in range(3):
        grads = gradient_of(hyper, draws)
        hyper, memory, states = joint_step(rule, 0.1, grads, hyper, memory, states)
        flat, flat_memory = rule.update(grads, flat_memory, flat, 0.1)
    assert_same_bits(hyper | {seat: states[client][EMBEDDING] for client, seat in SEATS.items()}, flat)
    assert memory.keys() == flat_memory.keys()
    for group, values in flat_memory.items():
        mine = {seat: states[i][f"{EMBEDDING}.{group}"] for i, seat in SEATS.items() if seat in values}
        assert_same_bits(memory[group] | mine, values)
        assert not set(memory[group]) & set(SEATS.values())
    assert all(states[client]["own"] is own[client] for client in own)


@rules
def test_clients_that_have_no_turn_change_nothing_for_those_who_have(rule):
    """With Adam the count of steps is common to all, and so are its corrections."""
    draws = torch.Generator().manual_seed(5)
    hyper, memory, states = begun(rule, draws)
    grads = gradient_of(hyper, draws)
    both = joint_step(rule, 0.1, grads, hyper, memory, states)
    alone = {name: value for name, value in grads.items() if name != SEATS[4]}
    one = joint_step(rule, 0.1, alone, hyper, memory, {1: states[1]})
    assert_same_bits(one[0], both[0])
    assert set(one[2]) == {1}
    assert_same_bits(one[2][1], both[2][1])


@rules
def test_a_step_writes_into_nothing_it_was_given(rule):
    draws = torch.Generator().manual_seed(5)
    hyper, memory, states = begun(rule, draws)
    grads = gradient_of(hyper, draws)
    hyper, memory, states = joint_step(rule, 0.1, grads, hyper, memory, states)
    given = [hyper, grads, *memory.values(), *states.values()]
    copies = [copy_of(params) for params in given]
    new, _, moved = joint_step(rule, 0.1, grads, hyper, memory, states)
    for params, copy in zip(given, copies, strict=True):
        assert_same_bits(params, copy)
    assert all(not torch.equal(new[name], hyper[name]) for name in hyper)
    assert all(not torch.equal(moved[client][EMBEDDING], states[client][EMBEDDING]) for client in states)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(limit):
    with pytest.raises(InvalidConfig, match="largest norm of the server's gradient must be"):
        HyperRound(clip_norm=limit)
