"""Each method against the pseudo-code of its paper, in float64: full and mini-batches, whole and partial cohorts."""

from __future__ import annotations

from pathlib import Path

import pytest

from plures.local import FULL, epochs, exponential, steps
from plures.local.budgets import Steps
from plures.methods import METHODS, fedalt, fedavg, fedper, fedsim, finetune, local, pflego
from plures.participation import uniform
from tests.helpers.methods import BODY, HEAD, assert_all_near, assert_near, play
from tests.oracles import fedalt as oracle_fedalt
from tests.oracles import fedavg as oracle_fedavg
from tests.oracles import fedper as oracle_fedper
from tests.oracles import fedsim as oracle_fedsim
from tests.oracles import finetune as oracle_finetune
from tests.oracles import local as oracle_local
from tests.oracles import pflego as oracle_pflego
from tests.oracles.common import batches_of, client_loss
from tests.oracles.settings import ROUNDS, SAMPLERS, settings


def test_one_of_the_cohorts_by_coin_is_empty_and_is_followed_by_another():
    cohorts = play(fedavg(budget=steps(1)), ROUNDS, SAMPLERS["by coin"]).cohorts
    assert () in cohorts[:-1]
    assert cohorts[-1] != ()


def test_every_method_has_an_oracle_that_a_test_uses():
    """One file per method, with a function of the method's name, imported by a test."""
    here = Path(__file__).parent
    tests = "".join(path.read_text(encoding="utf-8") for path in here.parent.rglob("test_*.py"))
    for name in METHODS:
        assert f"def {name}(" in (here / f"{name}.py").read_text(encoding="utf-8")
        assert f"from tests.oracles import {name}" in tests or f"from tests.oracles.{name} import" in tests


@settings
def test_fedavg_is_its_paper(budget, sampler):
    run = play(fedavg(lr=0.3, budget=budget, server=0.7), ROUNDS, sampler)
    clients = run.population.batches
    weights = oracle_fedavg.fedavg(
        clients, run.servers[0].shared, run.cohorts, batches_of(clients, budget), lr=0.3, server_lr=0.7
    )
    assert_near(run.shared, weights)
    assert not any(run.final.values())


@settings
@pytest.mark.parametrize("tuned", [BODY + HEAD, HEAD], ids=["all", "head"])
def test_finetune_is_fedavg_and_then_local_steps(budget, sampler, tuned):
    tune = epochs(3, batch=4)
    personal = None if tuned != HEAD else "head"
    run = play(finetune(lr=0.3, budget=budget, tune=tune, tune_lr=0.2, personal=personal), ROUNDS, sampler)
    clients = run.population.batches
    common, own = oracle_finetune.finetune(
        clients,
        run.servers[0].shared,
        run.cohorts,
        batches_of(clients, budget),
        batches_of(clients, tune),
        lr=0.3,
        tune_lr=0.2,
        tuned=tuned,
    )
    assert_near(run.shared, common)
    assert_all_near({client: run.adapted(client) for client in own}, own)


@settings
def test_local_is_a_loop_over_clients(budget, sampler):
    run = play(local(lr=0.3, budget=budget), ROUNDS, sampler)
    clients = run.population.batches
    own = oracle_local.local(clients, run.states[0][0], run.cohorts, batches_of(clients, budget), lr=0.3)
    assert_all_near(run.final, own)
    assert run.shared == {}


@settings
def test_fedper_is_its_paper(budget, sampler):
    run = play(fedper(lr=0.3, budget=budget), ROUNDS, sampler)
    clients = run.population.batches
    theta, heads = oracle_fedper.fedper(
        clients, run.servers[0].shared, run.states[0], run.cohorts, batches_of(clients, budget), lr=0.3
    )
    assert_near(run.shared, theta)
    assert_all_near(run.final, heads)


def partial_loss(clients, start, l2=0.0):
    """F_i(u, v) + l2 |v - v_i(0)|^2: the network's own split."""

    def loss(both, i, rows):
        distance = sum(((both[name] - value) ** 2).sum() for name, value in start[i].items())
        return client_loss(both, clients[i], rows) + l2 * distance

    return loss


def twin_loss(clients, strength):
    """F_i(v) + strength / 2 |v - u|^2: formulation (2) as a case of (3)."""

    def loss(both, i, rows):
        own = {name: both[f"twin.{name}"] for name in BODY + HEAD}
        distance = sum(((own[name] - both[name]) ** 2).sum() for name in own)
        return client_loss(own, clients[i], rows) + strength / 2 * distance

    return loss


@settings
@pytest.mark.parametrize("personal", [HEAD, BODY], ids=["head", "first layer"])
def test_fedsim_is_its_paper(budget, sampler, personal):
    method = fedsim(personal=list(personal), lr=0.3, personal_lr=0.2, budget=budget, personal_l2=0.05)
    run = play(method, ROUNDS, sampler)
    clients = run.population.batches
    u, v = oracle_fedsim.fedsim(
        clients,
        run.servers[0].shared,
        run.states[0],
        run.cohorts,
        batches_of(clients, budget),
        partial_loss(clients, run.states[0], 0.05),
        lr=0.3,
        personal_lr=0.2,
    )
    assert_near(run.shared, u)
    assert_all_near(run.final, v)


@settings
def test_mean_regularised_fedsim_is_formulation_two(budget, sampler):
    run = play(fedsim(lr=0.3, personal_lr=0.2, budget=budget, mean_regularised=0.4), ROUNDS, sampler)
    clients = run.population.batches
    u, v = oracle_fedsim.fedsim(
        clients,
        run.servers[0].shared,
        run.states[0],
        run.cohorts,
        batches_of(clients, budget),
        twin_loss(clients, 0.4),
        lr=0.3,
        personal_lr=0.2,
    )
    assert_near(run.shared, u)
    assert_all_near(run.final, v)


@settings
@pytest.mark.parametrize("personal", [HEAD, BODY], ids=["head", "first layer"])
def test_fedalt_is_its_paper(budget, sampler, personal):
    """The personal regulariser acts in the first phase only."""
    personal_budget = epochs(2, batch=4, stream="personal")
    method = fedalt(
        personal=list(personal),
        lr=0.3,
        personal_lr=0.2,
        budget=budget,
        personal_budget=personal_budget,
        personal_l2=0.05,
        server=0.8,
    )
    run = play(method, ROUNDS, sampler)
    clients, start = run.population.batches, run.states[0]
    u, v = oracle_fedalt.fedalt(
        clients,
        run.servers[0].shared,
        start,
        run.cohorts,
        batches_of(clients, personal_budget),
        batches_of(clients, budget),
        partial_loss(clients, start, 0.05),
        partial_loss(clients, start),
        lr=0.3,
        personal_lr=0.2,
        server_lr=0.8,
    )
    assert_near(run.shared, u)
    assert_all_near(run.final, v)


@settings
def test_mean_regularised_fedalt_is_formulation_two(budget, sampler):
    run = play(fedalt(lr=0.3, personal_lr=0.2, budget=budget, mean_regularised=0.4), ROUNDS, sampler)
    clients = run.population.batches
    batches, loss = batches_of(clients, budget), twin_loss(clients, 0.4)
    u, v = oracle_fedalt.fedalt(
        clients,
        run.servers[0].shared,
        run.states[0],
        run.cohorts,
        batches,
        batches,
        loss,
        loss,
        lr=0.3,
        personal_lr=0.2,
    )
    assert_near(run.shared, u)
    assert_all_near(run.final, v)


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())
@pytest.mark.parametrize("preset", ["exact", "paper"])
@pytest.mark.parametrize(("tau", "batch"), [(1, FULL), (5, FULL), (4, 3)])
def test_pflego_is_its_paper(tau, batch, preset, sampler):
    rate = exponential(0.1, 0.5)
    run = play(pflego(tau=tau, client_lr=0.2, server=rate, preset=preset, batch=batch), ROUNDS, sampler)
    clients = run.population.batches
    theta, heads = oracle_pflego.pflego(
        clients,
        run.servers[0].shared,
        run.states[0],
        run.cohorts,
        batches_of(clients, Steps(count=tau - 1, batch=batch, stream="inner")),
        batches_of(clients, Steps(count=1, batch=batch)),
        inclusion=sampler.draw(5, 1, 0).inclusion,
        client_lr=0.2,
        rate=rate,
        exact=preset == "exact",
    )
    assert_near(run.shared, theta)
    assert_all_near(run.final, heads)


@pytest.mark.parametrize("method", [fedsim, fedper])
def test_states_of_every_round_are_those_of_the_oracle_not_only_the_last(method):
    """Guards against errors that cancel: the path of u and v, round by round."""
    budget = epochs(1, batch=3)
    run = play(method(lr=0.3, budget=budget, start="common"), 3, uniform(2))
    clients, start = run.population.batches, run.states[0]
    for rounds in (1, 2, 3):
        u, v = oracle_fedsim.fedsim(
            clients,
            run.servers[0].shared,
            start,
            run.cohorts[:rounds],
            batches_of(clients, budget),
            partial_loss(clients, start),
            lr=0.3,
            personal_lr=0.3,
        )
        assert_near(run.servers[rounds].shared, u)
        assert_all_near(run.states[rounds], v)
