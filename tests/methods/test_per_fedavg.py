"""Per-FedAvg: a shared start for one step of each client's own, first order and Hessian-free."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import pytest
import torch

from plures.core.errors import InvalidConfig
from plures.core.method import Budget
from plures.local import epochs, exponential, sgd, steps
from plures.methods import fedavg, per_fedavg
from plures.participation import uniform
from tests.helpers.methods import (
    BODY,
    HEAD,
    Given,
    assert_near,
    assert_same_bits,
    bowl,
    minus,
    on_bowls,
    play,
)
from tests.oracles.common import batches_of, client_loss, gradient, step

ALL = BODY + HEAD
FIRST_ORDER, HESSIAN_FREE = {"variant": "first_order"}, {"variant": "hessian_free"}
GROUP = {"first_order": 2, "hessian_free": 3}
"""Batches of one step."""
variants = pytest.mark.parametrize("variant", GROUP)


def tiny(rounds=3, sampler=None, **options):
    return play(per_fedavg(**{"inner_lr": 0.2, "lr": 0.3, "budget": steps(6, batch=3)} | options), rounds, sampler)


def shared_path(run):
    return [float(server.shared["u"]) for server in run.servers]


# One step: f(w) = a / 2 (w - c)^2 with a = 2, c = 3 from w = 1; inner_lr = lr = 0.1


def test_a_first_order_step_by_hand():
    """w~ - c = (1 - inner_lr a) (w - c), so that grad f(w~) = a (1 - inner_lr a) (w - c): 2 * 0.8 * (-2) = -3.2.

    w = 1 + 0.32 = 1.32; in the same visit again, 1.32 + 0.1 * 1.6 * 1.68 = 1.5888. The reported loss is f(w~),
    (w~ - c)^2 with w~ - c = -1.6 and 0.8 * (-1.68) = -1.344: (2.56 + 1.806336) / 2.
    """
    run = on_bowls(per_fedavg(inner_lr=0.1, lr=0.1, budget=steps(4)), 1, bowl(2, 3))
    assert shared_path(run) == pytest.approx([1, 1.5888], rel=1e-12)
    assert run.reports[0].losses == {"shared": pytest.approx((2.56 + 1.806336) / 2, rel=1e-12)}
    once = on_bowls(per_fedavg(inner_lr=0.1, lr=0.1, budget=steps(2)), 1, bowl(2, 3))
    assert shared_path(once) == pytest.approx([1, 1.32], rel=1e-12)


@pytest.mark.parametrize("difference", [1e-3, 0.5, 40.0])
def test_a_hessian_free_step_by_hand_is_the_whole_gradient_whatever_the_difference(difference):
    """grad f is linear, so the two gradients differ by 2 d a g: g - inner_lr a g = a (1 - inner_lr a)^2 (w - c).

    That is 2 * 0.64 * (-2) = -2.56, w = 1.256; then 1.256 + 0.1 * 1.28 * 1.744 = 1.479232.
    """
    method = per_fedavg(**HESSIAN_FREE, difference=difference, inner_lr=0.1, lr=0.1, budget=steps(6))
    assert shared_path(on_bowls(method, 1, bowl(2, 3))) == pytest.approx([1, 1.479232], rel=1e-12)


def test_the_inner_rate_may_change_with_the_round():
    """First order with rates 0.1 and 0.05: w = 1.32, then 1.32 + 0.1 * 2 * 0.9 * 1.68 = 1.6224.

    A client that adapts after round 2 does so at the rate of that round: 1.6224 + 0.05 * 2 * 1.3776 = 1.76016.
    """
    method = per_fedavg(inner_lr=exponential(0.1, 0.5), lr=0.1, budget=steps(2))
    run = on_bowls(method, 2, bowl(2, 3))
    assert shared_path(run) == pytest.approx([1, 1.32, 1.6224], rel=1e-12)
    assert float(run.adapted(0)["u"]) == pytest.approx(1.76016, rel=1e-12)


@pytest.mark.parametrize(("options", "rest"), [(FIRST_ORDER, 12 / 3.3), (HESSIAN_FREE, 3.2), (None, 4.0)], ids=str)
def test_where_it_comes_to_rest(options, rest):
    """a = 1, c = 0 and a = 4, c = 5, inner_lr = 0.1, one step per round: where sum_i h_i (w - c_i) = 0.

    First order h = a (1 - 0.1 a) = 0.9 and 2.4: 5 * 2.4 / 3.3. Hessian-free h = a (1 - 0.1 a)^2 = 0.81 and 1.44:
    5 * 1.44 / 2.25 = 3.2, the least average loss after one step of each. FedAvg h = a: 5 * 4 / 5 = 4. At lr = 0.4 a
    round leaves 1 - 0.4 (h_0 + h_1) / 2 of the distance, at most 0.55.
    """
    common = {"lr": 0.4, "budget": steps(1 if options is None else GROUP[options["variant"]])}
    method = fedavg(**common) if options is None else per_fedavg(**options, inner_lr=0.1, **common)
    assert shared_path(on_bowls(method, 70, bowl(1, 0), bowl(4, 5)))[-1] == pytest.approx(rest, rel=1e-12)


def test_the_hessian_free_step_comes_near_the_gradient_through_the_inner_step():
    """By autograd through w - inner_lr * grad f(w). Central differences err by d^2: 100 times less for d / 10."""

    def after_one_step(weights, client):
        names = list(weights)
        grads = torch.autograd.grad(client_loss(weights, client), list(weights.values()), create_graph=True)
        moved = {name: weights[name] - 0.2 * grad for name, grad in zip(names, grads, strict=True)}
        return client_loss(moved, client)

    def error(**options):
        run = tiny(1, Given([(3,)]), budget=steps(3), lr=1.0, **options)
        start = run.servers[0].shared
        wanted = gradient(after_one_step, start, run.population.batches[3])
        gap = minus(minus(start, run.shared), wanted)
        return float(torch.cat([value.flatten() for value in gap.values()]).norm())

    coarse, fine = (error(**HESSIAN_FREE, difference=difference) for difference in (0.1, 0.01))
    assert coarse / fine == pytest.approx(100, rel=0.05)
    assert fine < 1e-5 < 1e-2 < error(**FIRST_ORDER)


# Which batches


@dataclass(frozen=True, kw_only=True)
class SecondOfEach:
    """Of each group of batches of a budget the second one."""

    budget: Budget
    group: int
    stream: str = ""

    def batches(self, num_examples, generator):
        return islice(self.budget.batches(num_examples, generator), 1, None, self.group)


@variants
@pytest.mark.parametrize("sampler", [None, uniform(3)], ids=["everybody", "three"])
def test_with_an_inner_rate_of_zero_it_is_fedavg_on_the_second_batches(variant, sampler):
    """7 batches: the pairs have the 2nd, 4th and 6th as their second, the triples the 2nd and 5th."""
    budget = steps(7, batch=2)
    run = tiny(3, sampler, variant=variant, inner_lr=0.0, budget=budget)
    plain = play(fedavg(lr=0.3, budget=SecondOfEach(budget=budget, group=GROUP[variant])), 3, sampler)
    for one, other in zip(run.servers, plain.servers, strict=True):
        assert_same_bits(one.shared, other.shared)
    assert [report.losses for report in run.reports] == [report.losses for report in plain.reports]
    assert all(not torch.equal(value, run.servers[0].shared[name]) for name, value in run.shared.items())


@variants
def test_batches_that_make_no_whole_group_are_not_used(variant):
    group = GROUP[variant]
    whole = tiny(3, variant=variant, budget=steps(2 * group, batch=2))
    more = tiny(3, variant=variant, budget=steps(3 * group - 1, batch=2))
    assert_same_bits(more.shared, whole.shared)
    assert [report.network_passes for report in more.reports] == [report.network_passes for report in whole.reports]
    one_more = tiny(3, variant=variant, budget=steps(3 * group, batch=2))
    assert all(not torch.equal(value, whole.shared[name]) for name, value in one_more.shared.items())


@variants
def test_less_than_one_group_moves_nothing_and_costs_nothing(variant):
    run = tiny(1, variant=variant, budget=steps(GROUP[variant] - 1))
    assert_same_bits(run.shared, run.servers[0].shared)
    assert (run.reports[0].network_passes, run.reports[0].losses) == (0.0, {})


@pytest.mark.parametrize(("variant", "weights"), [("first_order", [1, 1]), ("hessian_free", [1, 1, 2])])
def test_every_gradient_is_paid_for(variant, weights):
    """One on each batch; Hessian-free two on the third. Batches of 2 of 3 to 9 examples are not all of one size."""
    budget = epochs(3, batch=2)
    run = tiny(1, variant=variant, budget=budget)
    rows = batches_of(run.population.batches, budget)
    passes = 0.0
    for client, batch in enumerate(run.population.batches):
        sizes = [len(some) for some in rows(1, client)]
        used = len(sizes) // len(weights) * len(weights)
        passes += sum(weights[i % len(weights)] * size for i, size in enumerate(sizes[:used])) / batch.num_examples
    assert run.reports[0].network_passes == pytest.approx(passes, rel=1e-12)
    full = tiny(1, variant=variant, budget=steps(6))
    assert full.reports[0].network_passes == 5 * {"first_order": 6, "hessian_free": 8}[variant]


# The personal model


@variants
def test_a_clients_model_is_one_step_of_its_own_from_the_shared_model(variant):
    """By default on at most 32 examples, here all; at the inner rate, in either variant."""
    run = tiny(2, uniform(3), variant=variant)
    for client, batch in enumerate(run.population.batches):
        assert_near(run.adapted(client), step(run.shared, gradient(client_loss, run.shared, batch), 0.2))
        assert_same_bits(run.model(client), run.shared)
    assert run.program.method.judged_by == "finetuned"


def test_one_step_of_a_client_by_hand():
    """From w = 1, which the server keeps: 1 + 0.1 * 4 = 1.4; with `adapt` of two steps, 1.4 + 0.1 * 3.2 = 1.72."""
    still = {"inner_lr": 0.1, "lr": 0.7, "budget": steps(2), "server": 0.0}
    for options, expected in [({}, 1.4), ({"adapt": steps(2)}, 1.72)]:
        run = on_bowls(per_fedavg(**still, **options), 1, bowl(2, 3))
        assert float(run.adapted(0)["u"]) == pytest.approx(expected, rel=1e-12)


def test_it_sends_what_fedavg_sends_and_keeps_nothing():
    run, plain = tiny(2), play(fedavg(budget=steps(6)), 2)
    for report, other in zip(run.reports, plain.reports, strict=True):
        assert (report.bytes_up, report.bytes_down) == (other.bytes_up, other.bytes_down)
        assert other.bytes_up > 0
    assert all(set(result.upload.values) == set(ALL) and not result.state for _, result in run.results)
    assert list(run.store.clients()) == []


# What is refused


@pytest.mark.parametrize(
    "options",
    [
        {"variant": "exact"},
        {"inner_lr": -0.1},
        {"inner_lr": sgd(0.1)},  # a rate alone: the inner step is a plain one
        {"lr": float("nan")},
        *({"difference": value} for value in (0.0, -1e-3, float("inf"), "small")),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(InvalidConfig):
        per_fedavg(**options)


def test_a_misspelt_variant_is_told_the_right_one():
    with pytest.raises(InvalidConfig, match="Did you mean 'hessian_free'"):
        per_fedavg(variant="hesian_free")
