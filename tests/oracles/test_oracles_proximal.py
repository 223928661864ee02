"""FedProx, Ditto, pFedMe, FedRep and FedRecon against the pseudo-code of their papers, in float64."""

from __future__ import annotations

import pytest
import torch

from plures.core.seeds import generator
from plures.local import FULL, epochs, steps
from plures.methods import ditto, fedprox, fedrecon, fedrep, pfedme
from plures.participation import uniform
from tests.helpers.methods import BODY, HEAD, SEED, assert_all_near, assert_near, play
from tests.oracles import ditto as oracle_ditto
from tests.oracles import fedprox as oracle_fedprox
from tests.oracles import fedrecon as oracle_fedrecon
from tests.oracles import fedrep as oracle_fedrep
from tests.oracles import pfedme as oracle_pfedme
from tests.oracles.common import batches_of
from tests.oracles.settings import ROUNDS, SAMPLERS, settings

OWN = epochs(2, batch=4, stream="own")
"""Batches of a second phase, other than those of the first."""


def visited(run, twins=False):
    """States of who has been in a cohort; a twin goes by the name of its original."""
    seen = sorted({client for cohort in run.cohorts for client in cohort})
    assert len(seen) > 1
    names = [f"twin.{name}" for name in BODY + HEAD] if twins else HEAD
    return {i: {name.removeprefix("twin."): run.final[i][name] for name in names} for i in seen}


def half_of(clients, budget, first):
    """Batches among the examples first, first + 2, ...: numbered anew, drawn, and numbered back."""

    def rows(round, client):
        mine = torch.arange(len(clients[client].targets))[first::2]
        draws = generator(SEED, "batches", round, client, budget.stream)
        return [mine if some is None else mine[some] for some in budget.batches(len(mine), draws)]

    return rows


@settings
def test_fedprox_is_its_paper(budget, sampler):
    run = play(fedprox(mu=0.7, lr=0.3, budget=budget, server=0.8), ROUNDS, sampler)
    clients = run.population.batches
    weights = oracle_fedprox.fedprox(
        clients, run.servers[0].shared, run.cohorts, batches_of(clients, budget), mu=0.7, lr=0.3, server_lr=0.8
    )
    assert_near(run.shared, weights)
    assert not any(run.final.values())


@settings
@pytest.mark.parametrize("centre", ["received", "trained"])
def test_ditto_is_its_paper(centre, budget, sampler):
    method = ditto(lam=0.6, centre=centre, lr=0.3, personal_lr=0.2, budget=budget, personal_budget=OWN)
    run = play(method, ROUNDS, sampler)
    clients = run.population.batches
    w, v = oracle_ditto.ditto(
        clients,
        run.servers[0].shared,
        run.cohorts,
        batches_of(clients, budget),
        batches_of(clients, OWN),
        lam=0.6,
        lr=0.3,
        personal_lr=0.2,
        trained_centre=centre == "trained",
    )
    assert_near(run.shared, w)
    assert_all_near(visited(run, twins=True), v)


@settings
def test_ditto_by_finetuning_is_fedavg_and_then_pulled_steps_without_the_half(budget, sampler):
    tune = epochs(3, batch=4)
    run = play(ditto(variant="ft", lam=0.6, lr=0.3, personal_lr=0.2, budget=budget, adapt=tune), ROUNDS, sampler)
    clients = run.population.batches
    w, v = oracle_ditto.ditto_ft(
        clients,
        run.servers[0].shared,
        run.cohorts,
        batches_of(clients, budget),
        batches_of(clients, tune),
        lam=0.6,
        lr=0.3,
        personal_lr=0.2,
    )
    assert_near(run.shared, w)
    assert_all_near({client: run.adapted(client) for client in v}, v)


@settings
@pytest.mark.parametrize("detached", [False, True], ids=["pulled", "detached"])
def test_pfedme_is_its_paper(detached, budget, sampler):
    rates = {"lam": 1.5, "inner_steps": 3, "inner_lr": 0.2, "lr": 0.4}
    run = play(pfedme(**rates, detached_prox=detached, budget=budget, server=0.7), ROUNDS, sampler)
    clients = run.population.batches
    w, thetas = oracle_pfedme.pfedme(
        clients,
        run.servers[0].shared,
        run.cohorts,
        batches_of(clients, budget),
        **rates,
        pull=0.0 if detached else 1.5,
        beta=0.7,
    )
    assert_near(run.shared, w)
    assert_all_near(visited(run, twins=True), thetas)


@settings
def test_the_shared_model_of_pfedme_does_not_depend_on_which_personal_model_is_kept(budget, sampler):
    """With personal_model = "finetuned", the personal model is w after steps with the pull to it, at theta's rate."""
    rates = {"lam": 1.5, "inner_steps": 3, "inner_lr": 0.2, "lr": 0.4}
    tune = epochs(3, batch=4)
    run = play(pfedme(**rates, personal_model="finetuned", adapt=tune, budget=budget), ROUNDS, sampler)
    clients = run.population.batches
    batches, tune_batches = batches_of(clients, budget), batches_of(clients, tune)
    w, _ = oracle_pfedme.pfedme(clients, run.servers[0].shared, run.cohorts, batches, **rates, pull=1.5)
    assert_near(run.shared, w)
    assert not any(run.final.values())
    tuned = {i: oracle_ditto.pulled_steps(w, w, clients[i], tune_batches(ROUNDS, i), 1.5, 0.2) for i in range(5)}
    assert_all_near({i: run.adapted(i) for i in tuned}, tuned)


@settings
def test_fedrep_is_its_paper(budget, sampler):
    run = play(fedrep(lr=0.3, head_lr=0.2, budget=budget, head_budget=OWN, start="uniform"), ROUNDS, sampler)
    clients = run.population.batches
    theta, heads = oracle_fedrep.fedrep(
        clients,
        run.servers[0].shared,
        run.states[0],
        run.cohorts,
        batches_of(clients, OWN),
        batches_of(clients, budget),
        lr=0.3,
        head_lr=0.2,
    )
    assert_near(run.shared, theta)
    assert_all_near(run.final, heads)


@settings
@pytest.mark.parametrize("personal", [HEAD, BODY], ids=["head", "first layer"])
def test_fedrecon_is_its_paper(personal, budget, sampler):
    method = fedrecon(
        personal=list(personal), lr=0.3, recon_lr=0.2, budget=budget, recon_budget=OWN, start="uniform", server=0.8
    )
    run = play(method, ROUNDS, sampler)
    clients = run.population.batches
    u = oracle_fedrecon.fedrecon(
        clients,
        run.servers[0].shared,
        run.states[0],
        run.cohorts,
        half_of(clients, OWN, 0),
        half_of(clients, budget, 1),
        lr=0.3,
        recon_lr=0.2,
        server_lr=0.8,
    )
    assert_near(run.shared, u)
    assert list(run.store.clients()) == []


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())
@pytest.mark.parametrize(("tau", "batch"), [(1, FULL), (5, FULL), (4, 3)])
def test_the_pflego_variant_of_fedrecon_is_their_algorithm_4(tau, batch, sampler):
    budget = steps(tau, batch=batch)
    method = fedrecon(variant="pflego", recon_lr=0.2, recon_budget=budget, start="uniform", server=0.05)
    run = play(method, ROUNDS, sampler)
    clients = run.population.batches
    theta, heads = oracle_fedrecon.fedrecon_pflego(
        clients,
        run.servers[0].shared,
        run.states[0],
        run.cohorts,
        batches_of(clients, budget),
        inclusion=sampler.draw(5, 1, 0).inclusion,
        beta=0.2,
        rho=0.05,
    )
    assert_near(run.shared, theta)
    assert_all_near(run.final, heads)


def test_shared_and_personal_models_are_those_of_the_oracles_in_every_round_not_only_the_last():
    """Guards against errors that cancel, and against a twin that begins elsewhere than where its client came in."""
    budget = epochs(1, batch=3)
    run = play(ditto(lam=0.6, lr=0.3, budget=budget, personal_budget=OWN), 3, uniform(2))
    clients = run.population.batches
    batches, own = batches_of(clients, budget), batches_of(clients, OWN)
    assert set(run.cohorts[1]) - set(run.cohorts[0])
    for rounds in (1, 2, 3):
        w, v = oracle_ditto.ditto(
            clients, run.servers[0].shared, run.cohorts[:rounds], batches, own, lam=0.6, lr=0.3, personal_lr=0.3
        )
        assert_near(run.servers[rounds].shared, w)
        for i, expected in v.items():
            state = run.states[rounds][i]
            assert_near({name.removeprefix("twin."): value for name, value in state.items()}, expected)
