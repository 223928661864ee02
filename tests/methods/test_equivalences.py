"""Methods that must agree where one is a case of the other (METHODS 6, the rows of the methods there are)."""

from __future__ import annotations

import pytest
import torch

from plures.core.method import Method
from plures.local import FULL, epochs, sgd, steps
from plures.methods import fedalt, fedavg, fedper, fedsim, finetune, local
from plures.participation import binomial, uniform
from tests.helpers.methods import (
    BODY,
    HEAD,
    Played,
    assert_near,
    assert_same_bits,
    network,
    part_of,
    play,
)
from tests.oracles.common import client_loss, gradient, step, total

BUDGETS = {"full batch": steps(3), "mini-batches": epochs(2, batch=3)}
budgets = pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS.keys())
samplers = pytest.mark.parametrize("sampler", [uniform(3), binomial(0.25)], ids=["three", "by coin"])


def same(left: Method, right: Method, sampler) -> tuple[Played, Played]:
    """Both runs, with the same bits in server and states of every round, in losses and in costs."""
    runs = play(left, 4, sampler), play(right, 4, sampler)
    for round in range(5):
        assert_same_bits(runs[0].servers[round].shared, runs[1].servers[round].shared)
        for client in range(5):
            assert_same_bits(runs[0].states[round][client], runs[1].states[round][client])
    for first, second in zip(runs[0].reports, runs[1].reports, strict=True):
        assert first.cohort == second.cohort
        assert list(first.losses.values()) == list(second.losses.values())
        assert (first.bytes_up, first.bytes_down) == (second.bytes_up, second.bytes_down)
        assert first.network_passes == second.network_passes
    return runs


@samplers
@budgets
@pytest.mark.parametrize(("method", "nothing"), [(fedper, ()), (fedsim, "all_shared")])
def test_nothing_personal_is_fedavg(method, nothing, budget, sampler):
    run, _ = same(method(personal=nothing, lr=0.3, budget=budget), fedavg(lr=0.3, budget=budget), sampler)
    assert len(run.shared) == 4


@samplers
@budgets
@pytest.mark.parametrize(("method", "everything"), [(fedper, "all_personal"), (fedsim, "*")])
def test_everything_personal_is_local(method, everything, budget, sampler):
    everybody = method(personal=everything, lr=0.3, budget=budget, start="common")
    run, _ = same(everybody, local(lr=0.3, budget=budget), sampler)
    assert run.shared == {}
    assert run.reports[0].bytes_up == 0


@samplers
@budgets
@pytest.mark.parametrize("start", ["common", "uniform"])
def test_fedper_is_fedsim_with_a_personal_head_and_one_rate(start, budget, sampler):
    head = fedsim(personal=list(HEAD), lr=0.3, personal_lr=0.3, budget=budget, start=start)
    same(fedper(lr=0.3, budget=budget, start=start), head, sampler)


@samplers
@budgets
def test_fedalt_without_personal_steps_is_fedavg_on_the_shared_part_with_frozen_heads(budget, sampler):
    """Frozen by asking no gradient of them: such parameters are neither trained nor sent."""
    frozen = network()
    for name, value in frozen.named_parameters():
        value.requires_grad_(name in BODY)
    alternating = play(fedalt(lr=0.3, budget=budget, personal_budget=epochs(0)), 4, sampler)
    averaging = play(fedavg(lr=0.3, budget=budget), 4, sampler, module=frozen)
    for round in range(5):
        assert_same_bits(alternating.servers[round].shared, averaging.servers[round].shared)
    assert set(averaging.shared) == set(BODY)
    assert not torch.equal(averaging.shared["body.weight"], averaging.servers[0].shared["body.weight"])


@budgets
@pytest.mark.parametrize("personal", ["head", "first_layer"])
def test_partial_finetuning_is_one_round_of_fedalt_without_shared_steps(personal, budget):
    """Both from the model that three rounds of FedAvg left, on the batches of round 1."""
    trained = network()
    trained.load_state_dict(play(fedavg(lr=0.3, budget=budget), 3).shared)
    alternating = play(fedalt(personal=personal, lr=0.3, personal_budget=budget, budget=epochs(0)), 1, module=trained)
    # One round of a server that stands still makes the tuning draw the batches of round 1.
    tuning = play(finetune(personal=personal, lr=0.3, tune=budget, server=0.0), 1, module=trained)
    assert_same_bits(alternating.shared, alternating.servers[0].shared)
    for client in range(5):
        assert_same_bits(tuning.adapted(client), alternating.shared | alternating.final[client])


def test_partial_finetuning_is_several_rounds_of_fedalt_without_shared_steps():
    """With full batches and no momentum, 3 rounds of 2 personal steps are 6 steps of tuning."""
    alternating = play(fedalt(lr=0.3, personal_budget=steps(2), budget=steps(0)), 3)
    tuning = play(finetune(personal="head", lr=0.3, tune=steps(6), server=0.0), 1)
    for client in range(5):
        assert_same_bits(part_of(tuning.adapted(client), HEAD), alternating.final[client])


def test_fedavg_of_one_full_batch_step_by_everybody_is_centralised_descent():
    run = play(fedavg(lr=0.3, budget=epochs(1, batch=FULL)), 5)
    weights, clients = run.servers[0].shared, run.population.batches
    for round in range(1, 6):
        grads = total((batch.num_examples / 28, gradient(client_loss, weights, batch)) for batch in clients)
        weights = step(weights, grads, 0.3)
        assert_near(run.servers[round].shared, weights)


@samplers
@pytest.mark.parametrize("method", [fedavg, finetune, fedper, fedsim, fedalt])
def test_a_server_of_sgd_at_rate_one_is_the_average(method, sampler):
    """FedAdam with its optimiser replaced by SGD at rate 1 (METHODS 2.2): what `server` is by default."""
    budget = epochs(1, batch=3)
    run, _ = same(method(lr=0.3, budget=budget, server=sgd(1.0)), method(lr=0.3, budget=budget), sampler)
    last, cohort = run.reports[-1], run.cohorts[-1]
    sizes = {client: run.population.num_examples(client) for client in cohort}
    trained = {visit.client: result.trained for visit, result in run.results if visit.round == last.round}
    average = total((sizes[client] / sum(sizes.values()), part_of(trained[client], run.shared)) for client in cohort)
    assert_near(run.shared, average)


@samplers
@budgets
def test_finetune_before_its_tuning_is_fedavg(budget, sampler):
    same(finetune(lr=0.3, budget=budget), fedavg(lr=0.3, budget=budget), sampler)
