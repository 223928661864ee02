"""pFedMe (METHODS 2.7)."""

from __future__ import annotations

import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidSplit
from plures.local import adam, epochs, exponential, sgd, steps
from plures.methods import fedavg, local, pfedme
from plures.participation import binomial, uniform
from plures.server import weights
from plures.stores.memory import MemoryStore
from tests.helpers.methods import (
    BODY,
    HEAD,
    Given,
    NormedNetwork,
    assert_all_near,
    assert_near,
    assert_same_bits,
    bowl,
    federation,
    network,
    on_bowls,
    play,
)
from tests.oracles.common import batches_of, step, total
from tests.oracles.ditto import pulled_steps

ALL = BODY + HEAD
BUDGET = epochs(2, batch=3)
RATES = {"lam": 1.5, "inner_steps": 3, "inner_lr": 0.2, "lr": 0.4, "budget": BUDGET}


def tiny(rounds=3, sampler=None, **options):
    return play(pfedme(**RATES | options), rounds, sampler)


def own(state):
    """The twin, which holds theta, by the names of the network."""
    return {name: state[f"twin.{name}"] for name in ALL}


# By hand


@pytest.mark.parametrize(
    ("detached", "w", "theta", "loss"), [(False, 1.2702, 1.791, 3.058436), (True, 1.277632, 1.81216, 3.05234176)]
)
def test_two_batches_by_hand(detached, w, theta, loss):
    """f = (w - 3)^2, lam = 0.5, two inner steps at rate 0.1, eta = 0.4, so that w goes 0.2 of the way to theta.

    Pulled:   theta 1, 1.4, 1.4 - 0.1 (-3.2 + 0.5 * 0.4) = 1.7, w = 1 + 0.2 * 0.7 = 1.14; theta begins there again:
              1.512, 1.512 - 0.1 (-2.976 + 0.5 * 0.372) = 1.791, w = 1.14 + 0.2 * 0.651 = 1.2702.
    Detached: theta 1, 1.4, 1.72, w = 1.144; theta 1.5152, 1.81216, w = 1.144 + 0.2 * 0.66816 = 1.277632.
    The loss is f alone, before each inner step: (4 + 2.56 + 1.86^2 + 1.488^2) / 4 = 3.058436, and
    (4 + 2.56 + 1.856^2 + 1.4848^2) / 4 = (6.56 + 3.444736 + 2.20463104) / 4 = 3.05234176.
    """
    method = pfedme(lam=0.5, inner_steps=2, inner_lr=0.1, lr=0.4, budget=steps(2), detached_prox=detached)
    run = on_bowls(method, 1, bowl(2, 3))
    assert float(run.shared["u"]) == pytest.approx(w, rel=1e-12)
    assert float(run.final[0]["twin.u"]) == pytest.approx(theta, rel=1e-12)
    assert run.reports[0].losses == {"shared": pytest.approx(loss, rel=1e-12)}


@pytest.mark.parametrize(("a", "c", "lam"), [(2.0, 3.0, 0.5), (1.0, -2.0, 4.0), (0.5, 7.0, 1.0)])
def test_many_inner_steps_reach_the_proximal_point_and_w_descends_on_the_moreau_envelope(a, c, lam):
    """theta = (a c + lam w) / (a + lam); the envelope there is a lam / (a + lam) / 2 (w - c)^2.

    Its gradient is a lam / (a + lam) (w - c), which also is lam (w - theta). Two rounds, the second from the new w.
    """
    method = pfedme(lam=lam, inner_steps=300, inner_lr=0.15, lr=0.5, budget=steps(1))
    run = on_bowls(method, 2, bowl(a, c))
    w = 1.0
    for round in (1, 2):
        theta, slope = (a * c + lam * w) / (a + lam), a * lam / (a + lam) * (w - c)
        assert float(run.states[round][0]["twin.u"]) == pytest.approx(theta, rel=1e-12)
        w -= 0.5 * slope
        assert float(run.servers[round].shared["u"]) == pytest.approx(w, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "w"),
    [({}, 3.0), ({"server": 0.25}, 1.5), ({"weight": weights.samples}, 2.0)],
    ids=["mean", "b = 1/4", "by examples"],
)
def test_the_server_takes_the_mean_of_the_clients_whatever_they_have(options, w):
    """f = (w - c)^2 / 2 with c = 5 and 1, lam = 1, one inner step at rate 0.5, eta = 2: w_i = w + 0.5 * 2 (c - w) = c.

    From w = 1 that is 5 and 1, the mean 3, a quarter of the way 1.5; with 1 and 3 examples it would be (5 + 3) / 4 = 2.
    """
    method = pfedme(lam=1.0, inner_steps=1, inner_lr=0.5, lr=2.0, budget=steps(1), **options)
    run = on_bowls(method, 1, bowl(1, 5, 1), bowl(1, 1, 3))
    assert float(run.shared["u"]) == pytest.approx(w, rel=1e-12)


def test_both_rates_may_be_schedules():
    """f = (w - 3)^2 / 2, lam = 1, one inner step: w moves eta * lr_p of the way to 3, and theta lr_p of it.

    eta = 1, 1/2 and lr_p = 0.4, 0.1: w = 1 + 0.4 * 2 = 1.8, then theta = 1.8 + 0.1 * 1.2 = 1.92 and w = 1.86.
    """
    method = pfedme(lam=1.0, inner_steps=1, lr=exponential(1.0, 0.5), inner_lr=exponential(0.4, 0.25), budget=steps(1))
    run = on_bowls(method, 2, bowl(1, 3))
    assert [float(server.shared["u"]) for server in run.servers] == pytest.approx([1, 1.8, 1.86], rel=1e-12)
    assert float(run.final[0]["twin.u"]) == pytest.approx(1.92, rel=1e-12)


# Cases


@pytest.mark.parametrize("sampler", [uniform(3), binomial(0.25)], ids=["three", "by coin"])
@pytest.mark.parametrize("budget", [steps(3), BUDGET], ids=["full batch", "mini-batches"])
@pytest.mark.parametrize(("lam", "detached"), [(0.1, False), (15.0, False), (15.0, True)])
def test_with_one_inner_step_it_is_fedavg_at_the_product_of_the_rates(lam, detached, budget, sampler):
    """The pull is zero where theta begins, so w <- w - eta lam lr_p grad f(w): of lam, only the product counts."""
    options = {"inner_steps": 1, "inner_lr": 0.6, "lr": 0.5 / lam, "detached_prox": detached}
    run = play(pfedme(lam=lam, budget=budget, **options), 4, sampler)
    plain = play(fedavg(lr=0.3, budget=budget, weight=weights.uniform), 4, sampler)
    for one, other in zip(run.servers, plain.servers, strict=True):
        assert_near(one.shared, other.shared)


def test_without_lam_the_shared_model_stays():
    run = tiny(3, uniform(3), lam=0.0)
    assert_same_bits(run.shared, run.servers[0].shared)


@pytest.mark.parametrize(("lam", "detached"), [(0.7, True), (15.0, True), (0.0, False)])
def test_theta_is_plain_steps_on_the_batch_if_detached_or_without_lam(lam, detached):
    """As Local takes them. If detached, lam acts in w_i <- w_i - eta lam (w_i - theta_i) only."""
    run = tiny(1, lam=lam, detached_prox=detached, inner_steps=4, budget=steps(1), lr=0.05)
    alone = play(local(lr=0.2, budget=steps(4)), 1)
    assert_all_near({client: own(state) for client, state in run.final.items()}, alone.final)
    start, mean = run.servers[0].shared, total((1 / 5, alone.final[client]) for client in range(5))
    assert_near(run.shared, step(start, {name: start[name] - mean[name] for name in ALL}, 0.05 * lam))


# The personal model


def test_the_network_of_a_client_sees_its_last_theta():
    run = tiny(3, uniform(3))
    client = run.cohorts[-1][0]
    inputs, theta = run.population.batches[0].inputs, own(run.final[client])
    seen = run.output(run.model(client), inputs)
    assert torch.equal(seen, torch.func.functional_call(network(), theta, (inputs,)))
    assert not torch.equal(seen, torch.func.functional_call(network(), run.shared, (inputs,)))
    assert run.program.method.judged_by == "personal"


def test_a_client_that_never_came_has_the_shared_model_and_one_that_stays_away_keeps_its_theta():
    run = tiny(3, Given([(0, 1), (1, 2), (2, 3)]))
    assert_same_bits(own(run.model(4)), run.shared)
    assert_same_bits(run.final[0], run.states[1][0])
    assert list(run.store.clients()) == [0, 1, 2, 3]


def test_a_visit_does_not_depend_on_the_theta_of_an_earlier_one():
    """theta begins at w at every batch: what a client kept is replaced, not used."""
    store = MemoryStore()
    store.commit(0, {client: {f"twin.{name}": torch.full((), 7.0) for name in ALL} for client in range(5)})
    run, plain = play(pfedme(**RATES), 2, store=store), tiny(2)
    assert_same_bits(run.shared, plain.shared)
    for client in range(5):
        assert_same_bits(run.final[client], plain.final[client])


def test_the_shared_model_goes_the_same_way_whichever_personal_model_is_wanted():
    theta, tuned = tiny(3, uniform(3)), tiny(3, uniform(3), personal_model="finetuned")
    assert_same_bits(theta.shared, tuned.shared)
    assert list(tuned.store.clients()) == []
    assert_same_bits(tuned.model(2), tuned.shared)
    assert tuned.program.method.judged_by == "finetuned"


@pytest.mark.parametrize("personal", ["theta", "finetuned"])
def test_adaptation_is_pulled_to_the_received_model_from_theta_or_from_that_model(personal):
    run = tiny(2, personal_model=personal, adapt=epochs(3, batch=2))
    batches = batches_of(run.population.batches, epochs(3, batch=2))(2, 2)
    begin = run.model(2) if personal == "finetuned" else own(run.model(2))
    expected = pulled_steps(begin, run.shared, run.population.batches[2], batches, 1.5, 0.2)
    assert_near(run.adapted(2) if personal == "finetuned" else own(run.adapted(2)), expected)
    assert torch.equal(run.adapted(2)["head.bias"], run.shared["head.bias"]) == (personal == "theta")


# What is sent, kept and paid


def test_all_of_w_is_sent_theta_is_kept_and_every_inner_step_is_a_pass():
    """27 values of 8 bytes for each of 5 clients; 2 epochs of 3 inner steps on each batch: 6 passes each."""
    run = tiny(1)
    (report,) = run.reports
    assert (report.bytes_up, report.bytes_down) == (5 * 27 * 8, 5 * 27 * 8)
    assert report.network_passes == pytest.approx(5 * 2 * 3, rel=1e-12)
    for visit, result in run.results:
        assert set(visit.received) == set(result.upload.values) == set(ALL)
        assert set(result.state) == {f"twin.{name}" for name in ALL}


def test_without_a_batch_nothing_moves_and_theta_is_the_received_model():
    run = tiny(2, budget=epochs(0))
    assert_same_bits(run.shared, run.servers[0].shared)
    for client in range(5):
        assert_same_bits(own(run.final[client]), run.shared)


def test_running_statistics_are_averaged_by_examples_and_have_no_twin():
    """One pass each: 0.1 of the mean of the client's own hidden values, weighed by N_i / 28 and not by 1/5."""
    options = RATES | {"inner_steps": 1, "budget": steps(1)}
    run = play(pfedme(**options, buffers="shared"), 1, module=network(NormedNetwork))
    means = [batch.inputs.mean(dim=0) @ run.servers[0].shared["body.weight"].T for batch in federation().batches]
    expected = sum(size / 28 * 0.1 * mean for size, mean in zip((3, 5, 7, 9, 4), means, strict=True))
    torch.testing.assert_close(run.shared["norm.running_mean"], expected, rtol=1e-12, atol=0)
    assert not [name for name in run.final[0] if "running" in name]
    with pytest.raises(InvalidSplit, match="policy"):
        play(pfedme(**options), 1, module=network(NormedNetwork))


@pytest.mark.parametrize(
    ("option", "wrong", "told"),
    [
        *(("lam", wrong, "lam") for wrong in (-1.0, float("nan"), float("inf"), "15")),
        *(("inner_steps", wrong, "inner_steps") for wrong in (0, -1, 2.5, True)),
        *((rate, wrong, "rate") for rate in ("lr", "inner_lr") for wrong in (-0.1, adam(0.1), sgd(0.1))),
        ("personal_model", "teta", "Did you mean 'theta'"),
        ("buffers", "common", "buffers"),
    ],
)
def test_what_cannot_be_is_refused(option, wrong, told):
    """The rates are rates alone: neither w nor theta has an optimiser's memory."""
    with pytest.raises(InvalidConfig, match=told):
        pfedme(**{option: wrong})
