"""FedEM: a mixture of shared networks, with shares of each client's own."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from math import exp, log

import pytest
import torch
from torch.func import grad_and_value
from torch.nn import functional as F

from plures.core.client import run_client
from plures.local import epochs, steps
from plures.methods import fedavg, fedem
from plures.participation import uniform
from plures.parts.mixture import Mixture
from tests.helpers.methods import (
    Population,
    Product,
    assert_near,
    assert_same_bits,
    bowl,
    equal_bits,
    network,
    play,
    toy_loss,
)
from tests.oracles import fedem as oracle
from tests.oracles.common import batches_of
from tests.oracles.settings import ROUNDS, settings

BUDGET = epochs(2, batch=3)
SIZE = 27
"""Values of the tests' network."""


def tiny(rounds=3, sampler=None, *, module=None, population=None, loss=F.cross_entropy, **options):
    method = fedem(**{"lr": 0.3, "budget": BUDGET} | options)
    return play(method, rounds, sampler, module=module, population=population, loss=loss)


def networks_of(shared, count=3):
    """Each component by the names of the network."""
    return [
        {name.removeprefix(f"components.{m}."): v for name, v in shared.items() if name.startswith(f"components.{m}.")}
        for m in range(count)
    ]


def made_of(*networks):
    """FedEM of given components, equal ones too."""
    method = fedem(components=len(networks), lr=0.3, budget=BUDGET)
    return replace(method, wrap=lambda bare: Mixture([deepcopy(one) for one in networks]))


def other(number):
    """Networks with different values."""
    module = network()
    with torch.no_grad():
        for value in module.parameters():
            value.mul_(number).add_(0.1 * number)
    return module


@settings
@pytest.mark.parametrize(("components", "server"), [(2, 1.0), (3, 0.7)])
def test_fedem_is_its_paper(budget, sampler, components, server):
    run = tiny(ROUNDS, sampler, budget=budget, components=components, server=server)
    clients, first = run.population.batches, networks_of(run.servers[0].shared, components)
    assert not torch.equal(first[0]["body.weight"], first[1]["body.weight"])
    networks, shares = oracle.fedem(clients, first, run.cohorts, batches_of(clients, budget), lr=0.3, server_lr=server)
    for one, expected in zip(networks_of(run.shared, components), networks, strict=True):
        assert_near(one, expected)
    for client, expected in shares.items():
        assert run.final[client]["mixing"].tolist() == pytest.approx(expected, rel=1e-12)


def test_two_rounds_by_hand():
    """F = (w - 3)^2 with networks w = 1 and 2, at rate 0.1, one step: w_m moves by 0.1 q_m 2 (3 - w_m).

    Round 1: losses 4 and 1 at shares 1/2: q_1 = 1 / (1 + e^-3) of the second. Round 2: the same from those shares.
    The reported loss is that of the mixture on arrival: -log(e^-4 / 2 + e^-1 / 2) in round 1.
    """
    method = replace(
        fedem(components=2, outputs="values", lr=0.1, budget=steps(1)),
        wrap=lambda bare: Mixture([Product(1.0, 1.0), Product(2.0, 1.0)], outputs="values"),
    )
    module = Product(1.0, 1.0)
    run = play(method, 2, population=Population([bowl(2, 3)]), module=module, loss=toy_loss)
    w, shares = [(1.0, 1.0), (2.0, 1.0)], [0.5, 0.5]
    for round in (1, 2):
        losses = [(u * v - 3) ** 2 for u, v in w]
        likely = [share * exp(-loss) for share, loss in zip(shares, losses, strict=True)]
        shares = [one / sum(likely) for one in likely]
        # Both factors of a product move: dF/du = 2 (u v - 3) v.
        w = [
            (u - 0.1 * q * 2 * (u * v - 3) * v, v - 0.1 * q * 2 * (u * v - 3) * u)
            for q, (u, v) in zip(shares, w, strict=True)
        ]
        found = networks_of(run.servers[round].shared, 2)
        assert [float(one[name]) for one in found for name in "uv"] == pytest.approx([*w[0], *w[1]], rel=1e-12)
        assert run.states[round][0]["mixing"].tolist() == pytest.approx(shares, rel=1e-12)
        assert run.reports[round - 1].losses == {"shared": pytest.approx(-log(sum(likely)), rel=1e-12)}
        if round == 1:
            assert shares == pytest.approx([1 / (1 + exp(3)), 1 / (1 + exp(-3))], rel=1e-12)


# Several components


def test_shares_are_shares_in_every_round_and_differ_between_clients():
    run = tiny(4, uniform(3))
    for states in run.states:
        for state in states.values():
            assert state["mixing"].sum().item() == pytest.approx(1.0, rel=1e-14)
            assert (state["mixing"] > 0).all()
    assert all(state["mixing"].tolist() == [1 / 3] * 3 for state in run.states[0].values())
    assert len({tuple(state["mixing"].tolist()) for state in run.final.values()}) == 5


def test_equal_components_stay_equal_with_equal_shares():
    """q = pi = 1/3 by symmetry, so that each moves as FedAvg does at a third of the rate."""
    run, plain = play(made_of(network(), network(), network()), 3), play(fedavg(lr=0.1, budget=BUDGET), 3)
    first, second, third = networks_of(run.shared)
    assert_same_bits(first, second)
    assert_same_bits(first, third)
    for state in run.final.values():
        assert state["mixing"].tolist() == pytest.approx([1 / 3] * 3, rel=1e-14)
    assert_near(first, plain.shared)


@pytest.mark.parametrize("sampler", [None, uniform(2)], ids=["everybody", "two"])
def test_another_order_of_the_components_gives_the_same_in_that_order(sampler):
    straight = play(made_of(other(1), other(2), other(3)), 3, sampler)
    turned = play(made_of(other(3), other(1), other(2)), 3, sampler)
    for place, number in enumerate([2, 0, 1]):
        assert_near(networks_of(turned.shared)[place], networks_of(straight.shared)[number])
    for client in range(5):
        assert_near({"": turned.final[client]["mixing"]}, {"": straight.final[client]["mixing"][[2, 0, 1]]})
    (visited, *_) = straight.cohorts[0]
    assert len(set(straight.final[visited]["mixing"].tolist())) == 3


def test_the_networks_of_a_run_start_different_and_follow_its_seed():
    first, again, another = (networks_of(play(fedem(), 0, seed=seed).shared) for seed in (1, 1, 2))
    assert not any(torch.equal(a["head.weight"], b["head.weight"]) for a, b in [first[:2], first[1:], first[::2]])
    for one, same, different in zip(first, again, another, strict=True):
        assert_same_bits(one, same)
        assert one is first[0] or not torch.equal(one["head.weight"], different["head.weight"])
    assert_same_bits(first[0], dict(network().state_dict()))


def test_every_network_travels_in_both_directions_and_no_share_does():
    run = tiny(2, uniform(2))
    for visit, result in run.results:
        assert "mixing" not in {*visit.received, *result.upload.values}
    for report in run.reports:
        assert (report.values_up, report.values_down) == (2 * 3 * SIZE, 2 * 3 * SIZE)


def test_at_a_rate_of_zero_the_networks_stand_still_and_the_shares_are_learnt():
    run = tiny(3, lr=0.0)
    assert_same_bits(run.shared, run.servers[0].shared)
    losses = [report.losses["shared"] for report in run.reports]
    assert losses[2] < losses[1] < losses[0]
    assert all(state["mixing"].tolist() != [1 / 3] * 3 for state in run.final.values())


def test_each_component_is_clipped_by_itself():
    """A full-batch step of rate 1 is a gradient; of length g it becomes g / max(1, (g + 1e-6) / 0.05)."""
    options = {"lr": 1.0, "budget": steps(1), "components": 2}
    free, clipped = (tiny(1, **options, clip_norm=limit) for limit in (None, 0.05))
    factors = set()
    for (_, one), (_, other_one) in zip(free.results, clipped.results, strict=True):
        for grads, short in zip(
            networks_of(one.upload.values, 2), networks_of(other_one.upload.values, 2), strict=True
        ):
            length = torch.cat([value.flatten() for value in grads.values()]).norm()
            factor = min(1.0, 0.05 / (length.item() + 1e-6))
            assert_near(short, {name: factor * value for name, value in grads.items()}, 1e-9)
            factors.add(factor)
    assert len(factors) == 10
    assert max(factors) < 1.0


def test_gradients_by_torch_func_are_the_same():
    """So that an engine may map clients."""
    run = tiny(1)
    visit, binding = run.visit(3), run.program.binding(3)
    mapped = run_client(run.program.method, binding, visit, lambda loss, point: grad_and_value(loss)(point))
    plain = run_client(run.program.method, binding, visit)
    assert_near(mapped.upload.values, plain.upload.values)
    assert equal_bits(mapped.state["mixing"], plain.state["mixing"])
