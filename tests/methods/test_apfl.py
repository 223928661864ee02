"""APFL: a mixture of the shared model and one's own, with a weight that is learnt."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plures.core.errors import InvalidConfig, InvalidModel
from plures.local import epochs, steps
from plures.methods import apfl, fedavg, local
from plures.participation import uniform
from tests.helpers.methods import (
    BODY,
    HEAD,
    Given,
    assert_near,
    assert_same_bits,
    bowl,
    copy_of,
    federation,
    on_bowls,
    part_of,
    play,
)

ALL = BODY + HEAD
BUDGET = epochs(2, batch=3)
samplers = pytest.mark.parametrize("sampler", [None, uniform(3)], ids=["everybody", "three"])


def tiny(rounds=3, sampler=None, **options):
    return play(apfl(**{"lr": 0.3, "budget": BUDGET} | options), rounds, sampler)


def own(state):
    """The twin, by the names of the network."""
    return {name: state[f"twin.{name}"] for name in ALL}


def shares(run):
    """Every client's alpha after each round."""
    return [[float(state["alpha"]) for state in states.values()] for states in run.states]


def test_two_rounds_by_hand():
    """F = (w - 3)^2, F' = 2 (w - 3), from w = v = 1 with a = 0.5, all rates 0.1, one step of each.

    Round 1: v - w = 0, so a stays; at m = 1, w = 1 + 0.1 * 4 = 1.4 and v = 1 + 0.1 * a * 4 = 1.2.
    Round 2: m = 1.3, F'(m) = -3.4; a = 0.5 - 0.1 (1.2 - 1.4) (-3.4) = 0.432. Then, both at the same point,
    w = 1.4 + 0.1 * 3.2 = 1.72; m = 0.432 * 1.2 + 0.568 * 1.4 = 1.3136, F'(m) = -3.3728,
    v = 1.2 + 0.1 * 0.432 * 3.3728 = 1.34570496.

    The reported losses are those of the mixture: 1.7^2 where a moves, 1.6864^2 where the models do.
    """
    run = on_bowls(apfl(alpha=0.5, alpha_lr=0.1, lr=0.1, budget=steps(1)), 2, bowl(2, 3))
    assert [float(server.shared["u"]) for server in run.servers] == pytest.approx([1, 1.4, 1.72], rel=1e-12)
    assert [float(s[0]["twin.u"]) for s in run.states] == pytest.approx([1, 1.2, 1.34570496], rel=1e-12)
    assert shares(run) == [[0.5], [0.5], [pytest.approx(0.432, rel=1e-12)]]
    expected = {"alpha": pytest.approx(1.7**2, rel=1e-12), "shared+personal": pytest.approx(1.6864**2, rel=1e-12)}
    assert run.reports[1].losses == expected


def test_two_steps_of_a_visit_by_hand_mix_with_the_copy_that_moves():
    """As round 1 above; the second step has w = 1.4, v = 1.2, m = 1.3: w = 1.72, v = 1.2 + 0.1 * 0.5 * 3.4 = 1.37."""
    run = on_bowls(apfl(alpha=0.5, alpha_lr=0.1, lr=0.1, budget=steps(2)), 1, bowl(2, 3))
    assert float(run.shared["u"]) == pytest.approx(1.72, rel=1e-12)
    assert float(run.final[0]["twin.u"]) == pytest.approx(1.37, rel=1e-12)


def test_who_is_unlike_the_others_comes_to_trust_its_own_model():
    """(w - 3)^2 and (w + 1)^2 cancel at w = 1, which stays; in round 1 the twins go to 1.2 and 0.8.

    Round 2, first client: m = 1.1, F' = -3.8, a = 0.5 + 0.1 * 0.2 * 3.8 = 0.576; the second is its mirror image.
    """
    run = on_bowls(apfl(alpha=0.5, alpha_lr=0.1, lr=0.1, budget=steps(1)), 2, bowl(2, 3), bowl(2, -1))
    assert float(run.shared["u"]) == pytest.approx(1.0, rel=1e-12)
    assert shares(run)[-1] == pytest.approx([0.576, 0.576], rel=1e-12)


@pytest.mark.parametrize(("clients", "bound"), [([bowl(2, 3)], 0.0), ([bowl(2, 3), bowl(2, -1)], 1.0)], ids=["0", "1"])
def test_a_share_that_would_leave_its_bounds_stops_there(clients, bound):
    """The two runs above at a rate of 1: 0.5 - 0.68 is below 0, 0.5 + 0.76 above 1."""
    run = on_bowls(apfl(alpha=0.5, alpha_lr=1.0, lr=0.1, budget=steps(1)), 2, *clients)
    assert shares(run)[-1] == [bound] * len(clients)


def test_at_any_rate_the_shares_stay_between_0_and_1():
    for rate in (0.1, 10.0, 1e6):
        found = [value for values in shares(tiny(6, uniform(3), alpha_lr=rate)) for value in values]
        assert all(0 <= value <= 1 for value in found)
        assert len(set(found)) > 2
    assert {0.0, 1.0} <= set(found)  # at the highest of them both bounds are met


# Where it is another method


@samplers
def test_a_share_of_zero_that_stays_leaves_everybody_with_the_model_of_fedavg(sampler):
    run, plain = tiny(4, sampler, alpha=0.0, alpha_lr=0.0), play(fedavg(lr=0.3, budget=BUDGET), 4, sampler)
    for one, other in zip(run.servers, plain.servers, strict=True):
        assert_same_bits(one.shared, other.shared)
    for client, batch in enumerate(run.population.batches):
        seen = run.output(run.model(client), batch.inputs)
        assert torch.equal(seen, plain.output(plain.model(client), batch.inputs))
        assert_same_bits(own(run.final[client]), run.servers[0].shared)  # a v has no gradient at a = 0
    assert not torch.equal(run.shared["body.weight"], run.servers[0].shared["body.weight"])


@samplers
def test_a_share_of_one_that_stays_gives_everybody_the_model_of_local(sampler):
    run = tiny(4, sampler, alpha=1.0, alpha_lr=0.0)
    alone, plain = play(local(lr=0.3, budget=BUDGET), 4, sampler), play(fedavg(lr=0.3, budget=BUDGET), 4, sampler)
    assert_same_bits(run.shared, plain.shared)
    for client, batch in enumerate(run.population.batches):
        for ours, theirs in zip(run.states, alone.states, strict=True):
            assert_same_bits(own(ours[client]), theirs[client])
        seen = run.output(run.model(client), batch.inputs)
        assert torch.equal(seen, alone.output(alone.model(client), batch.inputs))
    assert not torch.equal(own(run.final[0])["body.weight"], run.shared["body.weight"])


def test_the_shared_model_goes_its_way_whatever_the_shares_are():
    plain = play(fedavg(lr=0.3, budget=BUDGET), 3, uniform(3))
    for alpha, alpha_lr in [(0.0, 0.5), (0.3, 0.0), (0.3, 2.0), (1.0, 1e3)]:
        run = tiny(3, uniform(3), alpha=alpha, alpha_lr=alpha_lr)
        for one, other in zip(run.servers, plain.servers, strict=True):
            assert_same_bits(one.shared, other.shared)


# The personal model


def test_the_network_of_a_client_sees_the_mixture_with_the_latest_shared_model():
    run = tiny(3, uniform(3), alpha=0.3)
    inputs, client = run.population.batches[0].inputs, run.cohorts[0][0]
    twin, share = own(run.final[client]), float(run.final[client]["alpha"])
    seen = {name: share * twin[name] + (1 - share) * run.shared[name] for name in ALL}
    hidden = torch.tanh(F.linear(inputs, seen["body.weight"], seen["body.bias"]))
    expected = F.linear(hidden, seen["head.weight"], seen["head.bias"])
    assert_near({"output": run.output(run.model(client), inputs)}, {"output": expected})
    assert 0 < share < 1
    assert all(not torch.equal(twin[name], run.shared[name]) for name in ALL)
    assert run.program.method.judged_by == "personal"


def test_only_the_shared_model_is_sent_and_the_twin_and_its_share_are_kept():
    """A visit passes its examples once to move the share, then twice in each of the two epochs: 5 clients * 5."""
    run, plain = tiny(1), play(fedavg(lr=0.3, budget=BUDGET), 1)
    for _, result in run.results:
        assert set(result.upload.values) == set(ALL)
        assert set(result.state) == {"alpha", *(f"twin.{name}" for name in ALL)}
    for name in ("bytes_up", "bytes_down"):
        assert getattr(run.reports[0], name) == getattr(plain.reports[0], name) > 0
    assert run.reports[0].network_passes == 5 * (1 + 2 * 2)
    assert set(run.reports[0].losses) == {"alpha", "shared+personal"}


def test_who_is_away_keeps_twin_and_share():
    run = tiny(3, Given([(0, 1), (1, 2), (1, 2)]), alpha_lr=0.5)
    assert_same_bits(run.final[0], run.states[1][0])
    assert not torch.equal(run.final[1]["alpha"], run.states[1][1]["alpha"])


def test_adaptation_by_hand_moves_the_twin_alone():
    """F = (w - 3)^2 at w = v = 1, a = 0.5, rate 0.1: v = 1 + 0.05 * 4 = 1.2; m = 1.1, v = 1.2 + 0.05 * 3.8 = 1.39."""
    run = on_bowls(apfl(alpha=0.5, lr=0.1, budget=steps(1), adapt=steps(2)), 0, bowl(2, 3))
    found = {name: float(value) for name, value in run.adapted(0).items()}
    assert found == {"u": 1.0, "v": 1.0, "alpha": 0.5, "twin.u": pytest.approx(1.39, rel=1e-12)}


def test_adaptation_touches_neither_the_server_nor_the_store():
    run = tiny(2)
    shared, kept = copy_of(run.shared), copy_of(run.store.get(1))
    adapted = run.adapted(1)
    assert_same_bits(run.shared, shared)
    assert_same_bits(run.store.get(1), kept)
    assert_same_bits(part_of(adapted, ALL), run.shared)
    assert all(not torch.equal(own(adapted)[name], own(kept)[name]) for name in ALL)


def test_a_stateless_client_starts_from_the_first_share_and_twin_at_every_visit():
    run = tiny(3, alpha=0.4, alpha_lr=0.5, stateful=False)
    assert list(run.store.clients()) == []
    assert {float(visit.state["alpha"]) for visit, _ in run.results} == {0.4}
    assert {float(result.state["alpha"]) for visit, result in run.results if visit.round == 3} != {0.4}


# What is refused


class Leaky(nn.Module):
    """A network with a parameter of its own called alpha."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, inputs):
        return self.alpha * inputs


def test_a_model_with_a_parameter_called_alpha_is_told_to_rename_it():
    with pytest.raises(InvalidModel, match=r"'alpha', the name of the mixing weight\. Rename it"):
        play(apfl(), 0, population=federation([3]), module=Leaky())


@pytest.mark.parametrize(
    "options",
    [{"alpha": -0.1}, {"alpha": 1.1}, {"alpha": float("nan")}, {"alpha_lr": -1.0}, {"lr": float("inf")}],
    ids=str,
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(InvalidConfig):
        apfl(**options)
