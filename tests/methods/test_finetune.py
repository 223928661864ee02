"""FedAvg-FT, full and partial (METHODS 2.5)."""

from __future__ import annotations

import pytest
import torch

from plures.local import epochs, steps
from plures.methods import fedavg, finetune
from plures.participation import uniform
from tests.helpers.methods import BODY, HEAD, assert_near, assert_same_bits, copy_of, part_of, play

BUDGET = epochs(2, batch=3)


def tuned(**options):
    return play(finetune(lr=0.3, budget=BUDGET, **options), 3, uniform(3))


@pytest.mark.parametrize("personal", [None, "head"])
def test_its_federated_rounds_are_those_of_fedavg(personal):
    plain = play(fedavg(lr=0.3, budget=BUDGET), 3, uniform(3))
    run = tuned(personal=personal, tune_lr=0.9)
    assert_same_bits(run.shared, plain.shared)
    assert run.cohorts == plain.cohorts
    assert list(run.store.clients()) == []


@pytest.mark.parametrize("personal", [None, "head"])
def test_no_epochs_of_tuning_give_the_model_of_fedavg(personal):
    run = tuned(personal=personal, tune=epochs(0))
    inputs = run.population.batches[2].inputs
    for client in range(5):
        assert_same_bits(run.adapted(client), run.shared)
    assert torch.equal(run.output(run.adapted(2), inputs), run.output(run.shared, inputs))


def test_partial_tuning_leaves_the_rest_bitwise_as_it_was():
    run = tuned(personal="head", tune=epochs(3, batch=2))
    for client in range(5):
        own = run.adapted(client)
        assert_same_bits(part_of(own, BODY), part_of(run.shared, BODY))
        assert all(not torch.equal(own[name], run.shared[name]) for name in HEAD)


def test_partial_tuning_of_everything_is_full_tuning():
    partial, full = tuned(personal="*"), tuned()
    for client in range(5):
        assert_same_bits(partial.adapted(client), full.adapted(client))


def test_full_tuning_moves_everything():
    run = tuned()
    assert all(not torch.equal(value, run.shared[name]) for name, value in run.adapted(1).items())


def test_tuning_touches_neither_the_server_nor_any_store():
    run = tuned(tune=epochs(3, batch=2))
    server, before = run.server, copy_of(run.shared)
    first = run.adapted(1)
    run.adapted(0)
    assert run.server is server
    assert_same_bits(run.shared, before)
    assert list(run.store.clients()) == []
    assert_same_bits(run.adapted(1), first)


def test_tuning_takes_the_training_rate_unless_it_has_its_own():
    """One full-batch step: twice the rate, twice the way."""
    same, twice = tuned(tune=steps(1)), tuned(tune=steps(1), tune_lr=0.6)
    way = {name: same.shared[name] + 2 * (value - same.shared[name]) for name, value in same.adapted(3).items()}
    assert_near(twice.adapted(3), way)


def test_one_tuning_step_is_one_step_down_the_clients_own_loss():
    run = tuned(tune=steps(1), tune_lr=0.6)
    client = run.population.batches[3]
    weights = {name: value.clone().requires_grad_() for name, value in run.shared.items()}
    loss = torch.nn.functional.cross_entropy(run.output(weights, client.inputs), client.targets)
    grads = torch.autograd.grad(loss, list(weights.values()))
    expected = {name: run.shared[name] - 0.6 * grad for name, grad in zip(weights, grads, strict=True)}
    assert_near(run.adapted(3), expected)
