"""FedRecon: `recon`, stateless and with halves, and the PFLEGO papers' variant (METHODS 2.12)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from plures.core.client import run_client, run_phases
from plures.core.errors import InvalidConfig, InvalidSplit
from plures.core.types import Batch
from plures.local import FULL, adam, epochs, query, sgd, steps, support
from plures.methods import fedrecon, pflego
from plures.participation import binomial, uniform
from plures.server import weights
from plures.stores.memory import MemoryStore
from tests.helpers.methods import (
    BODY,
    HEAD,
    Given,
    NormedNetwork,
    Population,
    Product,
    assert_near,
    assert_same_bits,
    federation,
    network,
    part_of,
    play,
    same_bits,
    toy_loss,
)
from tests.oracles.common import client_loss, gradient, step, total

BUDGETS = {"budget": epochs(2, batch=2), "recon_budget": epochs(3, batch=2)}


def tiny(rounds=3, sampler=None, population=None, **options):
    return play(fedrecon(**{"lr": 0.3, "recon_lr": 0.2, **BUDGETS} | options), rounds, sampler, population=population)


def like_pflego(rounds=3, sampler=None, tau=4, **options):
    method = fedrecon(
        **{"variant": "pflego", "recon_lr": 0.2, "recon_budget": steps(tau), "start": "common"}
        | {"server": 0.05}
        | options
    )
    return play(method, rounds, sampler)


def toy(rounds, targets, **options):
    """Examples 1 -> target for the network u v x, from u = 1, v = 2; each loss is (u v - target)^2 / 2."""
    targets = torch.tensor(targets, dtype=torch.float64)
    method = fedrecon(**{"personal": "v", "recon_lr": 0.2, "recon_budget": steps(1), "start": "common"} | options)
    client = Batch(torch.ones_like(targets), targets)
    return play(method, rounds, population=Population([client]), module=Product(), loss=toy_loss)


def test_two_rounds_by_hand():
    """Support has target 1, query 3. Round 1: dF/dv = 1, v = 1.8; dF/du = (1.8 - 3) 1.8 = -2.16, u = 1.216.

    Round 2, from v = 2 again: dF/dv = 1.432 * 1.216 = 1.741312, v = 1.6517376; 1.216 v = 2.0085129216,
    dF/du = -0.9914870784 v = -1.6376764873074279, u = 1.3797676487307428.
    Without a rate of its own v takes that of u: v = 1.9, dF/du = (1.9 - 3) 1.9 = -2.09, u = 1.209 after round 1.
    """
    run = toy(2, [1.0, 3.0], lr=0.1, budget=steps(1))
    assert float(run.shared["u"]) == pytest.approx(1.3797676487307428, rel=1e-12)
    assert [float(result.state["v"]) for _, result in run.results] == pytest.approx([1.8, 1.6517376], rel=1e-12)
    one_rate = toy(1, [1.0, 3.0], lr=0.1, budget=steps(1), recon_lr=None)
    assert float(one_rate.shared["u"]) == pytest.approx(1.209, rel=1e-12)


def test_two_rounds_of_the_pflego_variant_by_hand():
    """Both examples in both phases: targets 1 and 2 are like 1.5. Round 1: dF/dv = 0.5, v = 1.9; g = 0.4 * 1.9 = 0.76.

    SGD at rate 0.1: u = 0.924. Round 2, from v = 1.9: dF/dv = 0.2556 * 0.924 = 0.2361744, v = 1.85276512;
    g = (0.924 v - 1.5) v = 0.3927027770570797, u = 0.884729722294292.
    """
    run = toy(2, [1.0, 2.0], variant="pflego", server=sgd(0.1))
    assert float(run.shared["u"]) == pytest.approx(0.884729722294292, rel=1e-12)
    assert [float(state[0]["v"]) for state in run.states] == pytest.approx([2, 1.9, 1.85276512], rel=1e-12)


@pytest.mark.parametrize(("options", "rate"), [({}, 0.001), ({"server": 0.05}, 0.05), ({"server": adam(0.05)}, 0.05)])
def test_the_pflego_variants_server_is_adam_by_default_and_for_a_bare_rate(options, rate):
    """Its first step is rate * g / (|g| + 1e-8), with g = 0.76 as above."""
    run = toy(1, [1.0, 2.0], variant="pflego", **options)
    assert float(run.shared["u"]) == pytest.approx(1 - rate * 0.76 / (0.76 + 1e-8), rel=1e-12)


# The two halves


def spoilt(data: Batch, first: int) -> Batch:
    """Not a number in the examples first, first + 2, ...: whatever sees one of them is none either."""
    inputs = data.inputs.clone()
    inputs[first::2] = torch.nan
    return Batch(inputs, data.targets)


def after(phase, run, client, params, data):
    return run_phases((phase,), run.program.binding(client), replace(run.visit(client), data=data), params)[0]


@pytest.mark.parametrize("budget", [steps(2), epochs(2, batch=2), steps(3, batch=1)], ids=["full", "epochs", "ones"])
def test_the_own_part_sees_the_support_half_alone_and_the_shared_part_the_query_half_alone(budget):
    run = tiny(1, budget=budget, recon_budget=budget)
    for client, data in enumerate(run.population.batches):
        own, shared = (partial(after, phase, run, client) for phase in run.program.method.local)
        start = run.model(client)
        middle = own(start, data)
        assert_same_bits(own(start, spoilt(data, 1)), middle)
        assert all(own(start, spoilt(data, 0))[name].isnan().all() for name in HEAD)
        assert_same_bits(shared(middle, spoilt(data, 0)), shared(middle, data))
        assert all(shared(middle, spoilt(data, 1))[name].isnan().all() for name in BODY)


@pytest.mark.parametrize("budget", [steps(2), steps(2, batch=2), epochs(1), epochs(1, FULL)], ids=str)
def test_a_client_of_one_example_rebuilds_its_part_and_sends_no_change(budget):
    """Its query half is empty, and yet it counts with its one example: the server goes 4/5 of client 1's way."""
    run = tiny(1, population=federation([1, 4]), budget=budget, recon_budget=budget)
    (_, lone), (_, other) = run.results
    assert all(not value.any() for value in lone.upload.values.values())
    assert all(not torch.equal(lone.state[name], run.states[0][0][name]) for name in HEAD)
    assert_near(run.shared, step(run.servers[0].shared, other.upload.values, 4 / 5))
    assert all(torch.isfinite(value).all() for value in run.adapted(0).values())


# Stateless


@pytest.mark.parametrize("start", ["common", "uniform"])
def test_a_visit_does_not_depend_on_earlier_ones(start):
    """Client 2 in round 3, for the third time or for the first; the server stands still."""
    regular, new = (tiny(3, Given(cohorts), start=start, server=0.0) for cohorts in ([(2,)], [(0,), (1, 3), (2,)]))
    (visit, result), (_, other) = regular.results[-1], new.results[-1]
    assert_same_bits(result.upload.values, other.upload.values)
    assert_same_bits(result.state, other.state)
    assert_same_bits(visit.state, regular.states[0][2])


def test_nothing_is_kept_and_what_a_store_holds_is_not_read():
    store = MemoryStore()
    store.commit(0, {client: {name: torch.full((), torch.nan) for name in HEAD} for client in range(5)})
    run, plain = play(fedrecon(**BUDGETS), 2, store=store), play(fedrecon(**BUDGETS), 2)
    assert_same_bits(run.shared, plain.shared)
    assert list(plain.store.clients()) == []


@pytest.mark.parametrize("variant", ["recon", "pflego"])
def test_adaptation_rebuilds_the_own_part_on_all_examples_from_its_start_or_from_what_was_kept(variant):
    """There is nothing to be held out of it: support and query half are both used."""
    run = tiny(2, variant=variant, recon_budget=steps(3), start="uniform")
    own, expected = run.adapted(3), (run.states[0] if variant == "recon" else run.final)[3]
    for _ in range(3):
        expected = step(expected, gradient(client_loss, run.shared | expected, run.population.batches[3]), 0.2)
    assert_near(part_of(own, HEAD), expected)
    assert_same_bits(part_of(own, BODY), run.shared)
    assert run.program.method.judged_by == ("finetuned" if variant == "recon" else "personal")


# The PFLEGO papers' variant

taus = pytest.mark.parametrize("tau", [1, 5])


@taus
def test_what_the_pflego_variant_sends_is_what_pflego_sends_with_one_more_step(tau):
    """g_i is taken before PFLEGO's last step on W_i: from the same theta and W_i, the same bits."""
    run = play(pflego(tau=tau + 1, client_lr=0.2, server=0.05), 3, uniform(3))
    ours = like_pflego(0, tau=tau, start="uniform").program
    for visit, result in run.results:
        again = run_client(ours.method, ours.binding(visit.client), visit)
        assert_same_bits(again.upload.values, result.upload.values)
        assert not same_bits(again.state, result.state)


@pytest.mark.parametrize("sampler", [uniform(3), binomial(0.25)], ids=["three", "by coin"])
@taus
def test_pflego_whose_last_head_step_is_zero_is_the_pflego_variant(tau, sampler):
    """Same Adam and same scaling, over the cohort and by inclusion; so the runs are the same, round by round."""
    method = pflego(tau=tau + 1, client_lr=0.2, server=0.05)
    still = replace(method, local=(method.local[0], replace(method.local[1], optimizer=sgd(0.0))))
    ours, theirs = like_pflego(4, sampler, tau, start="uniform"), play(still, 4, sampler)
    for round in range(5):
        assert_same_bits(ours.servers[round].shared, theirs.servers[round].shared)
        for client in range(5):
            assert_same_bits(ours.states[round][client], theirs.states[round][client])
    assert not same_bits(ours.shared, play(method, 4, sampler).shared)


def test_the_pflego_variant_keeps_heads_sends_gradients_and_takes_two_passes():
    run = like_pflego(3, uniform(2))
    for visit, result in run.results:
        assert_same_bits(visit.state, run.states[visit.round - 1][visit.client])
        assert_same_bits(result.state, run.states[visit.round][visit.client])
        assert_same_bits(part_of(result.trained, BODY), visit.received)
        grads = gradient(client_loss, visit.received | result.state, visit.data)
        assert_near(result.upload.values, part_of(grads, BODY))
    assert [report.network_passes for report in run.reports] == [2 * 2] * 3


# What is sent, and how it is weighed


@pytest.mark.parametrize(("personal", "names", "num_values"), [("head", BODY, 15), ("first_layer", HEAD, 12)])
def test_only_the_shared_part_is_sent_and_an_epoch_of_each_half_is_one_pass(personal, names, num_values):
    """Values of 8 bytes, to and from 2 clients; ceil(N / 2) and floor(N / 2) of their examples are N."""
    run = tiny(1, uniform(2), personal=personal, budget=epochs(1, batch=2), recon_budget=epochs(1, batch=3))
    assert set(run.results[0][1].upload.values) == set(names)
    assert (run.reports[0].bytes_up, run.reports[0].bytes_down) == (2 * num_values * 8, 2 * num_values * 8)
    assert run.reports[0].network_passes == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "shares"),
    [({}, (5 / 14, 9 / 14)), ({"weight": weights.uniform}, (1 / 2, 1 / 2)), ({"server": 0.5}, (5 / 28, 9 / 28))],
    ids=["by examples", "uniform", "half way"],
)
def test_the_server_averages_changes_by_examples_unless_told_otherwise(options, shares):
    """Clients 1 and 3 have 5 and 9 examples, halves and all."""
    run = tiny(1, Given([(1, 3)], 2 / 5), **options)
    changes = total((share, result.upload.values) for share, (_, result) in zip(shares, run.results, strict=True))
    assert_near(run.shared, step(run.servers[0].shared, changes, 1.0))


def test_running_statistics_see_the_support_half_and_then_the_query_half():
    """One full-batch step each: 0.9 * 0.1 of the support half's mean and 0.1 of the query half's."""
    options, clients = {"budget": steps(1), "recon_budget": steps(1)}, federation([8, 6])
    run = play(fedrecon(**options, buffers="shared"), 1, module=network(NormedNetwork), population=clients)
    means = [0.09 * b.inputs[::2].mean(dim=0) + 0.1 * b.inputs[1::2].mean(dim=0) for b in clients.batches]
    expected = (8 * means[0] + 6 * means[1]) / 14 @ run.servers[0].shared["body.weight"].T
    torch.testing.assert_close(run.shared["norm.running_mean"], expected, rtol=1e-12, atol=0)
    with pytest.raises(InvalidSplit, match="policy"):
        play(fedrecon(**options), 1, module=network(NormedNetwork), population=clients)


@pytest.mark.parametrize(
    ("option", "wrong", "told"),
    [
        ("variant", "pflgo", "Did you mean 'pflego'"),
        ("start", "unifrom", "Did you mean 'uniform'"),
        ("buffers", "common", "buffers"),
        ("budget", query(steps(1)), "halves the data itself"),
        ("recon_budget", support(steps(1)), "halves the data itself"),
        *((rate, -0.1, "rate") for rate in ("lr", "recon_lr", "server")),
    ],
)
def test_what_cannot_be_is_refused(option, wrong, told):
    with pytest.raises(InvalidConfig, match=told):
        fedrecon(**{option: wrong})
