"""FedBABU, LG-FedAvg, FedBN, APFL, SCAFFOLD and Per-FedAvg against their papers' pseudo-code, in float64."""

from __future__ import annotations

import pytest

from plures.local import epochs, exponential, steps
from plures.methods import apfl, fedbabu, fedbn, lg_fedavg, per_fedavg, scaffold
from plures.participation import all_clients, binomial, uniform
from tests.helpers.methods import BODY, HEAD, NormedNetwork, assert_all_near, assert_near, network, part_of, play
from tests.oracles import apfl as oracle_apfl
from tests.oracles import fedbabu as oracle_fedbabu
from tests.oracles import fedbn as oracle_fedbn
from tests.oracles import lg_fedavg as oracle_lg_fedavg
from tests.oracles import per_fedavg as oracle_per_fedavg
from tests.oracles import scaffold as oracle_scaffold
from tests.oracles.common import batches_of

ROUNDS = 4
ALL = BODY + HEAD
SETTINGS = {
    "full batch, everybody": (steps(3), all_clients()),
    "full batch, two of five": (steps(3), uniform(2)),
    "epochs of three, two of five": (epochs(2, batch=3), uniform(2)),
    "seven steps of two, by coin": (steps(7, batch=2), binomial(0.25)),
}
settings = pytest.mark.parametrize(("budget", "sampler"), SETTINGS.values(), ids=SETTINGS.keys())


@settings
@pytest.mark.parametrize(("part", "orthonormal"), [("body", False), ("head", True), ("both", False)])
def test_fedbabu_is_its_paper(budget, sampler, part, orthonormal):
    tune = epochs(3, batch=4)
    method = fedbabu(lr=0.3, budget=budget, tune=tune, tune_lr=0.2, finetune_part=part, orthonormal=orthonormal)
    run = play(method, ROUNDS, sampler)
    clients = run.population.batches
    body, models = oracle_fedbabu.fedbabu(
        clients,
        run.servers[0].shared,
        part_of(run.program.binding(0).values, HEAD),
        run.cohorts,
        batches_of(clients, budget),
        batches_of(clients, tune),
        lr=0.3,
        tune_lr=0.2,
        tuned={"body": BODY, "head": HEAD, "both": ALL}[part],
    )
    assert_near(run.shared, body)
    assert_all_near({client: run.adapted(client) for client in models}, models)


@settings
@pytest.mark.parametrize("lower", [BODY, BODY[:1]], ids=["representation", "weights of it"])
def test_lg_fedavg_is_its_paper(budget, sampler, lower):
    options = {} if lower == BODY else {"personal": list(lower)}
    run = play(lg_fedavg(lr=0.3, budget=budget, **options), ROUNDS, sampler)
    clients = run.population.batches
    upper, lowers = oracle_lg_fedavg.lg_fedavg(
        clients, run.servers[0].shared, run.states[0], run.cohorts, batches_of(clients, budget), lr=0.3
    )
    assert_near(run.shared, upper)
    assert_all_near(run.final, lowers)
    assert set(run.final[0]) == set(lower)


@settings
def test_fedbn_is_its_paper(budget, sampler):
    run = play(fedbn(lr=0.3, budget=budget), ROUNDS, sampler, module=network(NormedNetwork))
    clients = run.population.batches
    rows = batches_of(clients, budget)
    u, states = oracle_fedbn.fedbn(
        clients,
        run.servers[0].shared,
        run.states[0],
        run.cohorts,
        # Of one example there is no variance: such a batch is passed by.
        lambda round, client: [some for some in rows(round, client) if len(some) > 1],
        lr=0.3,
    )
    assert_near(run.shared, u)
    assert_all_near(run.final, states)


@settings
@pytest.mark.parametrize(("alpha", "alpha_lr"), [(0.5, 0.0), (0.5, 0.3), (0.9, 3.0)], ids=["fixed", "slow", "fast"])
def test_apfl_is_its_paper(budget, sampler, alpha, alpha_lr):
    run = play(apfl(lr=0.3, budget=budget, alpha=alpha, alpha_lr=alpha_lr), ROUNDS, sampler)
    clients, start = run.population.batches, run.servers[0].shared
    w, v, alphas = oracle_apfl.apfl(
        clients,
        start,
        dict.fromkeys(range(5), start),
        dict.fromkeys(range(5), alpha),
        run.cohorts,
        batches_of(clients, budget),
        lr=0.3,
        alpha_lr=alpha_lr,
    )
    assert_near(run.shared, w)
    assert_all_near({i: {name: state[f"twin.{name}"] for name in ALL} for i, state in run.final.items()}, v)
    assert {i: float(state["alpha"]) for i, state in run.final.items()} == pytest.approx(alphas, rel=1e-12)
    assert (alphas == dict.fromkeys(range(5), alpha)) == (alpha_lr == 0)


@settings
@pytest.mark.parametrize("server", [1.0, 0.7])
def test_scaffold_is_its_paper(budget, sampler, server):
    rate = exponential(0.3, 0.5)
    run = play(scaffold(lr=rate, budget=budget, server=server), ROUNDS, sampler)
    clients = run.population.batches
    weights, control, own = oracle_scaffold.scaffold(
        clients,
        part_of(run.servers[0].shared, ALL),
        run.cohorts,
        batches_of(clients, budget),
        rate=rate,
        server_lr=server,
    )
    assert_near(part_of(run.shared, ALL), weights)
    assert_near({name: run.shared[f"control.{name}"] for name in ALL}, control)
    assert_all_near({i: {name: state[f"own_control.{name}"] for name in ALL} for i, state in run.final.items()}, own)


@settings
@pytest.mark.parametrize("difference", [None, 1e-2], ids=["first order", "Hessian-free"])
def test_per_fedavg_is_its_paper(budget, sampler, difference):
    options = {} if difference is None else {"variant": "hessian_free", "difference": difference}
    run = play(per_fedavg(inner_lr=0.2, lr=0.3, budget=budget, **options), ROUNDS, sampler)
    clients = run.population.batches
    weights = oracle_per_fedavg.per_fedavg(
        clients,
        run.servers[0].shared,
        run.cohorts,
        batches_of(clients, budget),
        inner_lr=0.2,
        lr=0.3,
        difference=difference,
    )
    assert_near(run.shared, weights)
