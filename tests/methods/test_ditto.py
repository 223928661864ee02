"""Ditto: `online` with either centre, and `ft` (METHODS 2.6)."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from plures.core.errors import InvalidConfig
from plures.local import epochs, steps
from plures.methods import ditto, fedavg
from plures.participation import uniform
from tests.helpers.methods import (
    BODY,
    HEAD,
    Given,
    assert_near,
    assert_same_bits,
    bowl,
    copy_of,
    on_bowls,
    part_of,
    play,
)
from tests.oracles.common import batches_of
from tests.oracles.ditto import pulled_steps

ALL = BODY + HEAD
BUDGET = epochs(2, batch=3)


def tiny(rounds=3, sampler=None, **options):
    return play(ditto(**{"lr": 0.3, "budget": BUDGET, "personal_budget": BUDGET} | options), rounds, sampler)


def own(state):
    """The twin, by the names of the network."""
    return {name: state[f"twin.{name}"] for name in ALL}


@pytest.mark.parametrize(("centre", "twins"), [("received", [1.8, 2.24]), ("trained", [1.84, 2.292])])
def test_two_rounds_by_hand(centre, twins):
    """F = (w - 3)^2 from w = v = 1, lam = 0.5, one step of each: at rate 0.1 for w, 0.2 for v. w: 1, 1.4, 1.72.

    Received: v = 1 + 0.2 * 4 = 1.8; then 1.8 - 0.2 (-2.4 + 0.5 (1.8 - 1.4)) = 2.24.
    Trained:  v = 1 - 0.2 (-4 + 0.5 (1 - 1.4)) = 1.84; then 1.84 - 0.2 (-2.32 + 0.5 (1.84 - 1.72)) = 2.292.
    """
    method = ditto(lam=0.5, centre=centre, lr=0.1, personal_lr=0.2, budget=steps(1), personal_budget=steps(1))
    run = on_bowls(method, 2, bowl(2, 3))
    assert [float(server.shared["u"]) for server in run.servers] == pytest.approx([1, 1.4, 1.72], rel=1e-12)
    assert [float(state[0]["twin.u"]) for state in run.states[1:]] == pytest.approx(twins, rel=1e-12)


def test_tuning_with_the_pull_by_hand_has_no_half_in_it():
    """F = (w - 3)^2, lam = 0.5, rate 0.1, from w = 1: 1.4; then 1.4 - 0.1 (-3.2 + 2 * 0.5 * 0.4) = 1.68."""
    method = ditto(variant="ft", lam=0.5, lr=0.1, budget=steps(1), adapt=steps(2), server=0.0)
    run = on_bowls(method, 1, bowl(2, 3))
    assert float(run.adapted(0)["u"]) == pytest.approx(1.68, rel=1e-12)


def test_without_a_gradient_of_its_own_one_step_of_length_one_over_lam_leads_to_the_received_model():
    """Client 0 learns nothing (its inputs are 0); client 1 moves w. In round 2, 0.25 * 4 = 1 takes v_0 to w."""
    method = ditto(lam=4.0, personal_lr=0.25, lr=0.1, budget=steps(1), personal_budget=steps(1))
    run = on_bowls(method, 2, bowl(0, 0), bowl(2, 3))
    assert float(run.states[1][0]["twin.u"]) == 1.0
    assert float(run.servers[1].shared["u"]) == pytest.approx(1.2, rel=1e-12)  # half of the clients' examples moved 0.4
    assert float(run.states[2][0]["twin.u"]) == pytest.approx(1.2, rel=1e-12)


@pytest.mark.parametrize(("variant", "rest"), [("online", 2.2), ("ft", 13 / 7)])
def test_the_personal_model_comes_to_rest_between_its_clients_best_and_the_shared_model(variant, rest):
    """a = 2, b = 3, lam = 1.5, w = 1 held still: (a b + lam w) / (a + lam) = 7.5 / 3.5; with 2 lam, (6 + 3) / 5."""
    rest = {"online": 7.5 / 3.5, "ft": 9 / 5}[variant]
    method = ditto(
        variant=variant, lam=1.5, lr=0.1, budget=steps(1), personal_budget=steps(200), adapt=steps(200), server=0.0
    )
    run = on_bowls(method, 1, bowl(2, 3))
    model = run.model(0)["twin.u"] if variant == "online" else run.adapted(0)["u"]
    assert float(model) == pytest.approx(rest, rel=1e-12)


@pytest.mark.parametrize("options", [{"centre": "received"}, {"centre": "trained"}, {"variant": "ft"}], ids=str)
def test_the_shared_model_goes_its_way_whatever_lam_is(options):
    plain = play(fedavg(lr=0.3, budget=BUDGET), 3, uniform(3))
    for lam in (0.0, 0.5, 2.0):
        run = tiny(3, uniform(3), lam=lam, personal_lr=0.1, **options)
        for one, other in zip(run.servers, plain.servers, strict=True):
            assert_same_bits(one.shared, other.shared)


def test_a_larger_lam_holds_the_twins_nearer_to_the_shared_model():
    def spread(lam):
        run = tiny(1, lam=lam, lr=0.1, personal_budget=steps(100), server=0.0)
        return sum(float((own(state)[name] - run.shared[name]).norm()) for state in run.final.values() for name in ALL)

    assert 0 < spread(1.0) < spread(0.1) < spread(0.0)


def test_the_twin_takes_the_rate_of_the_shared_model_unless_it_has_its_own():
    """One step without a pull: twice the rate, twice the way."""
    one = tiny(1, lam=0.0, personal_budget=steps(1))
    two = tiny(1, lam=0.0, personal_budget=steps(1), personal_lr=0.6)
    start = one.servers[0].shared
    for client in range(5):
        way = {name: start[name] + 2 * (value - start[name]) for name, value in own(one.final[client]).items()}
        assert_near(own(two.final[client]), way)


def test_only_the_shared_model_is_sent_and_both_phases_are_paid_for():
    (report,) = tiny(1, budget=epochs(2, batch=3), personal_budget=epochs(3, batch=3)).reports
    (plain,) = play(fedavg(budget=BUDGET), 1).reports
    assert (report.bytes_up, report.bytes_down) == (plain.bytes_up, plain.bytes_down)
    assert report.network_passes == 5 * (2 + 3)
    assert set(report.losses) == {"shared", "personal"}


# The personal model


def test_the_network_of_a_client_sees_its_twin():
    run = tiny(3, uniform(3), lam=0.5)
    inputs = run.population.batches[0].inputs
    client = run.cohorts[-1][0]
    seen = own(run.final[client])
    hidden = torch.tanh(F.linear(inputs, seen["body.weight"], seen["body.bias"]))
    assert torch.equal(run.output(run.model(client), inputs), F.linear(hidden, seen["head.weight"], seen["head.bias"]))
    assert not torch.equal(seen["body.weight"], run.shared["body.weight"])
    assert run.program.method.judged_by == "personal"


def test_a_twin_starts_as_the_first_model_that_its_client_receives():
    """Client 2 comes in round 3; until then it has no twin, and its model is the latest shared one."""
    run = play(ditto(lr=0.3, budget=BUDGET, personal_budget=BUDGET), 3, Given([(0, 1), (1, 3), (2, 3)]))
    came = [visit for visit, _ in run.results if visit.client == 2]
    assert [visit.round for visit in came] == [3]
    assert_same_bits(own(came[0].state), run.servers[2].shared)
    again = next(visit for visit, _ in run.results if (visit.client, visit.round) == (3, 3))
    assert_same_bits(again.state, run.states[2][3])
    assert not torch.equal(again.state["twin.head.bias"], run.servers[2].shared["head.bias"])


def test_a_newcomer_starts_from_the_received_model_and_is_held_near_it():
    run = play(ditto(lam=0.6, lr=0.3, budget=BUDGET, adapt=epochs(3, batch=2)), 3, Given([(0, 1), (2, 3)]))
    client = run.population.batches[4]
    assert run.store.get(4) is None
    assert_same_bits(own(run.model(4)), run.shared)
    batches = batches_of(run.population.batches, epochs(3, batch=2))(3, 4)
    assert_near(own(run.adapted(4)), pulled_steps(run.shared, run.shared, client, batches, 0.6, 0.3))
    assert_same_bits(part_of(run.adapted(4), ALL), run.shared)


@pytest.mark.parametrize("centre", ["received", "trained"])
def test_adaptation_of_who_has_been_there_goes_on_from_its_twin(centre):
    """Held near the received model for both centres: there is no trained copy when a client adapts by itself."""
    run = tiny(2, lam=0.6, personal_lr=0.2, centre=centre, adapt=epochs(3, batch=2))
    client, batches = run.population.batches[2], batches_of(run.population.batches, epochs(3, batch=2))(2, 2)
    assert_near(own(run.adapted(2)), pulled_steps(own(run.final[2]), run.shared, client, batches, 0.6, 0.2))


def test_adaptation_touches_neither_the_server_nor_the_store():
    run = tiny(2)
    shared, kept = copy_of(run.shared), copy_of(run.store.get(1))
    assert_same_bits(run.adapted(1), run.adapted(1))
    assert_same_bits(run.shared, shared)
    assert_same_bits(run.store.get(1), kept)


def test_a_stateless_twin_starts_from_the_received_model_at_every_visit():
    run = tiny(3, lam=0.6, stateful=False)
    assert list(run.store.clients()) == []
    for visit, result in run.results:
        assert_same_bits(own(visit.state), run.servers[visit.round - 1].shared)
        assert all(not torch.equal(result.state[name], visit.state[name]) for name in visit.state)
    assert_same_bits(own(run.model(1)), run.shared)


def test_finetuning_keeps_nothing_and_is_judged_after_it():
    run = tiny(3, uniform(3), variant="ft", lam=0.6, personal_lr=0.2, adapt=BUDGET)
    assert list(run.store.clients()) == []
    assert run.program.method.judged_by == "finetuned"
    assert_same_bits(run.model(0), run.shared)
    batches = batches_of(run.population.batches, BUDGET)(3, 0)
    expected = pulled_steps(run.shared, run.shared, run.population.batches[0], batches, 2 * 0.6, 0.2)
    assert_near(run.adapted(0), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"variant": "offline"},
        {"centre": "recieved"},
        {"lam": -1.0},
        {"lam": float("inf")},
        {"variant": "ft", "lam": -1.0},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(InvalidConfig):
        ditto(**options)


def test_a_misspelt_centre_is_told_the_right_one():
    with pytest.raises(InvalidConfig, match="Did you mean 'received'"):
        ditto(centre="recieved")
