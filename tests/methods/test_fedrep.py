"""FedRep (METHODS 2.11)."""

from __future__ import annotations

import pytest
import torch

from plures.core.client import run_phases
from plures.core.errors import InvalidConfig, InvalidSplit
from plures.local import adam, epochs, exponential, sgd, steps
from plures.methods import fedalt, fedavg, fedrep, finetune
from plures.participation import binomial, uniform
from plures.server import weights
from tests.helpers.methods import (
    BODY,
    HEAD,
    SIZES,
    Given,
    NormedNetwork,
    Population,
    Product,
    assert_near,
    assert_same_bits,
    network,
    part_of,
    play,
    toy_client,
    toy_loss,
)
from tests.oracles.common import client_loss, gradient, step, total

BUDGET, HEAD_BUDGET = epochs(1, batch=3), epochs(3, batch=2)
BUDGETS = {"budget": BUDGET, "head_budget": HEAD_BUDGET}
samplers = pytest.mark.parametrize("sampler", [uniform(3), binomial(0.25)], ids=["three", "by coin"])


def tiny(rounds=3, sampler=None, **options):
    return play(fedrep(**{"lr": 0.3, **BUDGETS} | options), rounds, sampler)


def toy(rounds=1, **options):
    method = fedrep(**{"personal": "v", "lr": 0.1, "budget": steps(1), "head_budget": steps(1)} | options)
    return play(method, rounds, population=Population([toy_client()]), module=Product(), loss=toy_loss)


# By hand


def test_head_steps_then_body_steps_by_hand():
    """F = (u v - 1)^2 / 2 at u = 1, v = 2. Three head steps at rate 0.3: v - 1 is 1, 0.7, 0.49, 0.343, so v = 1.343.

    Two body steps at rate 0.1: dF/du = 0.343 * 1.343 = 0.460649, u = 0.9539351; then (0.9539351 v - 1) v, where
    0.9539351 * 1.343 = 1.2811348393: dF/du = 0.3775640891799, u = 0.91617869108201.
    """
    run = toy(head_lr=0.3, head_budget=steps(3), budget=steps(2))
    assert float(run.final[0]["v"]) == pytest.approx(1.343, rel=1e-12)
    assert float(run.shared["u"]) == pytest.approx(0.91617869108201, rel=1e-12)


@pytest.mark.parametrize("lr", [0.1, sgd(0.1, momentum=0.9)], ids=["plain", "momentum"])
def test_the_next_visit_goes_on_from_the_head_and_with_fresh_optimisers(lr):
    """One step each, so that momentum would show in round 2 alone. Round 1: v = 1.9, u = 1 - 0.1 * 0.9 * 1.9 = 0.829.

    Round 2: dF/dv = (0.829 * 1.9 - 1) 0.829 = 0.4767579, v = 1.85232421; dF/du = (0.829 v - 1) v = 0.9920618175513109,
    u = 0.7297938182448689.
    """
    run = toy(2, lr=lr)
    assert float(run.final[0]["v"]) == pytest.approx(1.85232421, rel=1e-12)
    assert float(run.shared["u"]) == pytest.approx(0.7297938182448689, rel=1e-12)


def test_the_head_takes_the_bodys_rate_unless_it_has_its_own():
    """v = 2 - 0.1 = 1.9 by the common rate; with 0.4 and then 0.1 of its own, and u held still: 1.6, then 1.54."""
    assert float(toy().final[0]["v"]) == pytest.approx(1.9, rel=1e-12)
    run = toy(2, lr=0.0, head_lr=exponential(0.4, 0.25))
    assert [float(state[0]["v"]) for state in run.states] == pytest.approx([2, 1.6, 1.54], rel=1e-12)


def test_gradients_of_each_phase_are_clipped():
    """dF/dv = 1 is cut to 0.5, v = 1.95; then dF/du = 0.95 * 1.95 = 1.8525, cut too, u = 0.95.

    By torch's rule a gradient g is cut to 0.5 g / (|g| + 1e-6).
    """
    run = toy(clip_norm=0.5)
    assert float(run.final[0]["v"]) == pytest.approx(2 - 0.05 / (1 + 1e-6), rel=1e-12)
    assert float(run.shared["u"]) == pytest.approx(1 - 0.05 * 1.8525 / (1.8525 + 1e-6), rel=1e-12)


# Cases of other methods


@samplers
def test_without_head_steps_the_heads_never_move_and_the_body_is_that_of_fedavg(sampler):
    """Heads of FedAvg are frozen by asking no gradient of them: such parameters are neither trained nor sent."""
    frozen = network()
    for name, value in frozen.named_parameters():
        value.requires_grad_(name in BODY)
    run = tiny(4, sampler, head_budget=epochs(0))
    averaging = play(fedavg(lr=0.3, budget=BUDGET), 4, sampler, module=frozen)
    for round in range(5):
        assert_same_bits(run.servers[round].shared, averaging.servers[round].shared)
        for client in range(5):
            assert_same_bits(run.states[round][client], run.states[0][client])
    assert all(not torch.equal(run.shared[name], run.servers[0].shared[name]) for name in BODY)


def test_without_body_steps_the_body_stays_and_the_heads_are_tuned_alone():
    """3 rounds of 2 full-batch head steps are 6 steps of tuning the head of the same model."""
    run = tiny(3, budget=steps(0), head_budget=steps(2))
    assert_same_bits(run.shared, run.servers[0].shared)
    tuned = play(finetune(personal="head", lr=0.3, tune=steps(6), server=0.0), 1)
    for client in range(5):
        assert_same_bits(run.final[client], part_of(tuned.adapted(client), HEAD))


@samplers
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"personal": "first_layer", "start": "uniform"},
        {"clip_norm": 0.1, "server": adam(0.05), "adapt": steps(4)},
        {"weight": weights.uniform, "server": 0.7, "stateful": False},
    ],
    ids=["head", "first layer", "clipped, Adam", "uniform, stateless"],
)
def test_it_is_fedalt_with_the_same_budgets_and_rates(options, sampler):
    run = tiny(4, sampler, head_lr=0.2, **options)
    method = fedalt(lr=0.3, personal_lr=0.2, budget=BUDGET, personal_budget=HEAD_BUDGET, **options)
    alternating = play(method, 4, sampler)
    for round in range(5):
        assert_same_bits(run.servers[round].shared, alternating.servers[round].shared)
        for client in range(5):
            assert_same_bits(run.states[round][client], alternating.states[round][client])
    assert run.reports == alternating.reports
    if "adapt" in options:
        assert_same_bits(run.adapted(2), alternating.adapted(2))


# Who moves what


def test_each_phase_leaves_the_other_part_bitwise_as_it_was():
    run = tiny(2, uniform(3))
    head_phase, body_phase = run.program.method.local
    for client in range(5):
        binding, visit, params = run.program.binding(client), run.visit(client), run.model(client)
        middle = run_phases((head_phase,), binding, visit, params)[0]
        assert_same_bits(part_of(middle, BODY), part_of(params, BODY))
        assert all(not torch.equal(middle[name], params[name]) for name in HEAD)
        last = run_phases((body_phase,), binding, visit, middle)[0]
        assert_same_bits(part_of(last, HEAD), part_of(middle, HEAD))
        assert all(not torch.equal(last[name], middle[name]) for name in BODY)


def test_one_body_step_is_the_gradient_at_the_new_head_of_every_client():
    """The papers that compare with it take 49 head steps and 1 body step: then it is one step at the server, too."""
    run = tiny(1, head_budget=steps(49), budget=steps(1))
    body, clients = run.servers[0].shared, run.population.batches
    grads = [part_of(gradient(client_loss, body | run.final[i], clients[i]), BODY) for i in range(5)]
    assert_near(run.shared, step(body, total((SIZES[i] / 28, grads[i]) for i in range(5)), 0.3))


@pytest.mark.parametrize(
    ("options", "shares"),
    [({}, (5 / 14, 9 / 14)), ({"weight": weights.uniform}, (1 / 2, 1 / 2)), ({"server": 0.5}, (5 / 28, 9 / 28))],
    ids=["by examples", "uniform", "half way"],
)
def test_the_server_averages_bodies_by_examples_unless_told_otherwise(options, shares):
    """Clients 1 and 3 have 5 and 9 examples."""
    run = tiny(1, Given([(1, 3)], 2 / 5), **options)
    changes = total((share, result.upload.values) for share, (_, result) in zip(shares, run.results, strict=True))
    assert_near(run.shared, step(run.servers[0].shared, changes, 1.0))


def test_heads_of_who_is_not_drawn_stay_and_are_never_sent():
    """Each of 2 clients gets and sends the body's 4 * 3 + 3 = 15 values of 8 bytes."""
    run = tiny(3, uniform(2))
    for before, after, cohort in zip(run.states, run.states[1:], run.cohorts, strict=False):
        for client in range(5):
            assert torch.equal(after[client]["head.weight"], before[client]["head.weight"]) == (client not in cohort)
    for visit, result in run.results:
        assert set(visit.received) == set(result.upload.values) == set(BODY)
        assert set(result.state) == set(HEAD)
    assert [(report.bytes_up, report.bytes_down) for report in run.reports] == [(2 * 15 * 8, 2 * 15 * 8)] * 3


def test_by_default_ten_epochs_are_the_heads_and_one_is_the_bodys():
    (report,) = play(fedrep(), 1).reports
    assert report.network_passes == 5 * (10 + 1)
    assert report.losses["shared"] < report.losses["personal"]


def test_heads_start_common_or_each_with_draws_of_its_own():
    common, drawn = tiny(0).states[0], tiny(0, start="uniform").states[0]
    own = part_of(dict(network().named_parameters()), HEAD)
    for client in range(5):
        assert_same_bits(common[client], own)
    values = torch.cat([value.flatten() for state in drawn.values() for value in state.values()])
    assert len(values.unique()) == 5 * 12
    assert 0 <= values.min() < values.max() < 1


def test_without_state_every_visit_begins_at_the_start():
    run = tiny(3, stateful=False, start="uniform")
    assert list(run.store.clients()) == []
    for visit, result in run.results:
        assert_same_bits(visit.state, run.states[0][visit.client])
        assert all(not torch.equal(result.state[name], visit.state[name]) for name in HEAD)


def test_adaptation_goes_on_with_the_head_alone_at_the_heads_rate():
    run = tiny(2, head_lr=0.2, adapt=steps(4))
    own, expected = run.adapted(2), run.final[2]
    for _ in range(4):
        expected = step(expected, gradient(client_loss, run.shared | expected, run.population.batches[2]), 0.2)
    assert_same_bits(part_of(own, BODY), run.shared)
    assert_near(part_of(own, HEAD), expected)
    assert run.program.method.judged_by == "personal"


def test_running_statistics_are_updated_in_both_phases():
    """One pass each, on the same body: 0.1 m, then 0.9 * 0.1 m + 0.1 m = 0.19 m of the mean m of the hidden values."""
    options = {"budget": steps(1), "head_budget": steps(1)}
    run = play(fedrep(**options, buffers="personal"), 1, module=network(NormedNetwork))
    for client, batch in enumerate(run.population.batches):
        mean = batch.inputs.mean(dim=0) @ run.servers[0].shared["body.weight"].T
        torch.testing.assert_close(run.final[client]["norm.running_mean"], 0.19 * mean, rtol=1e-12, atol=0)
    with pytest.raises(InvalidSplit, match="policy"):
        play(fedrep(**options), 1, module=network(NormedNetwork))


@pytest.mark.parametrize(
    ("option", "wrong", "told"),
    [
        ("lr", -0.1, "rate"),
        ("head_lr", float("nan"), "rate"),
        ("server", "sgd", "optimiser"),
        ("clip_norm", 0.0, "clip_norm"),
        ("start", "unifrom", "Did you mean 'uniform'"),
        ("buffers", "common", "buffers"),
    ],
)
def test_what_cannot_be_is_refused(option, wrong, told):
    with pytest.raises(InvalidConfig, match=told):
        fedrep(**{option: wrong})
