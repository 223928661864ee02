"""The rows of METHODS 6 for the methods that came after the first seven."""

from __future__ import annotations

import pytest

from plures.local import epochs, steps
from plures.methods import ditto, fedavg, fedbabu, fedprox, finetune, lg_fedavg, local
from plures.participation import uniform
from tests.helpers.methods import BODY, HEAD, assert_same_bits, play
from tests.methods.test_equivalences import budgets, same, samplers

ALL = BODY + HEAD


@samplers
@budgets
def test_lg_fedavg_with_nothing_personal_is_fedavg(budget, sampler):
    run, _ = same(lg_fedavg(personal=(), lr=0.3, budget=budget), fedavg(lr=0.3, budget=budget), sampler)
    assert len(run.shared) == 4


@samplers
@budgets
def test_lg_fedavg_with_everything_personal_is_local(budget, sampler):
    run, _ = same(lg_fedavg(personal="all_personal", lr=0.3, budget=budget), local(lr=0.3, budget=budget), sampler)
    assert run.shared == {}


@samplers
@budgets
def test_fedprox_without_its_pull_is_fedavg(budget, sampler):
    same(fedprox(mu=0.0, lr=0.3, budget=budget), fedavg(lr=0.3, budget=budget), sampler)


@samplers
@budgets
def test_fedbabu_with_a_head_that_is_trained_and_shared_is_fedavg(budget, sampler):
    """No parameter is the fixed head: all of them are the body."""
    same(fedbabu(personal=(), lr=0.3, budget=budget), fedavg(lr=0.3, budget=budget), sampler)


@budgets
@pytest.mark.parametrize("lam", [0.0, 0.7])
def test_the_shared_path_of_ditto_is_fedavg(lam, budget):
    both = play(ditto(lam=lam, lr=0.3, budget=budget, personal_budget=steps(2)), 4, uniform(3))
    alone = play(fedavg(lr=0.3, budget=budget), 4, uniform(3))
    for one, other in zip(both.servers, alone.servers, strict=True):
        assert_same_bits(one.shared, other.shared)


@budgets
def test_the_personal_path_of_ditto_without_its_pull_is_local(budget):
    """Everybody takes part, so that all twins start from the first model."""
    both = play(ditto(lam=0.0, lr=0.1, personal_lr=0.3, budget=steps(1), personal_budget=budget), 4)
    alone = play(local(lr=0.3, budget=budget), 4)
    for round in range(5):
        for client in range(5):
            twins = {name: both.states[round][client][f"twin.{name}"] for name in ALL}
            assert_same_bits(twins, alone.states[round][client])


@budgets
def test_ditto_by_finetuning_without_its_pull_is_finetuning_of_everything(budget):
    tuned = epochs(2, batch=4)
    pulled = play(ditto(variant="ft", lam=0.0, lr=0.3, budget=budget, adapt=tuned), 3, uniform(3))
    plain = play(finetune(lr=0.3, budget=budget, tune=tuned), 3, uniform(3))
    for client in range(5):
        assert_same_bits(pulled.adapted(client), plain.adapted(client))
        assert any(not pulled.adapted(client)[name].equal(pulled.shared[name]) for name in ALL)
