"""PFLEGO's heads: cached features, the closed form, Newton, and when neither may be used (METHODS 2.15)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plures.core.client import run_phases
from plures.core.errors import InvalidModel
from plures.core.problem import Problem
from plures.local import FULL, steps
from plures.local.heads import on_features
from plures.local.newton import expansion, joined, with_ones
from plures.methods import pflego
from plures.participation import uniform
from tests.helpers.methods import (
    HEAD,
    HIDDEN,
    INPUTS,
    SIZES,
    NormedNetwork,
    TinyNetwork,
    assert_all_near,
    assert_near,
    assert_same_bits,
    federation,
    network,
    part_of,
    play,
)
from tests.oracles.common import client_loss, gradient

LARGE = (40, 60, 50, 45, 55)
"""Examples with random labels that no head of 12 values separates, so that the best head is finite."""


def pair(*, module=None, rounds=3, loss=F.cross_entropy, sizes=SIZES, **options):
    """The same run with features cached and without."""
    options = {"preset": "exact", "tau": 5, "client_lr": 0.2, "server": 0.3} | options
    return tuple(
        play(
            pflego(**options, cache_features=cache),
            rounds,
            uniform(3),
            module=module,
            loss=loss,
            population=federation(sizes),
        )
        for cache in (True, False)
    )


class NoBias(TinyNetwork):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(HIDDEN, 3, bias=False)


# (4) Cached and uncached


@pytest.mark.parametrize("make", [TinyNetwork, NoBias])
@pytest.mark.parametrize("batch", [FULL, 3])
@pytest.mark.parametrize("tau", [2, 12])
def test_cached_features_give_the_same_path_of_heads(tau, batch, make):
    cached, uncached = pair(tau=tau, batch=batch, module=network(make))
    for round in range(4):
        assert_near(cached.servers[round].shared, uncached.servers[round].shared)
        assert_all_near(cached.states[round], uncached.states[round])
    for report, other in zip(cached.reports, uncached.reports, strict=True):
        assert report.losses == pytest.approx(other.losses, rel=1e-12)
    assert cached.reports[0].network_passes < uncached.reports[0].network_passes or tau == 2


@pytest.mark.parametrize("make", [TinyNetwork, NoBias])
def test_the_closed_form_of_the_heads_gradient_is_that_of_autograd(make):
    run = play(pflego(tau=3), 2, module=network(make))
    for client in range(5):
        visit = run.visit(client)
        inner = run.program.method.local[0]
        problem = Problem(phase=inner, visit=visit, binding=run.program.binding(client), params=run.model(client))
        names = problem.moving_names()
        by_autograd, loss = problem.gradients(problem.params, visit.data, names)
        head = on_features(problem)
        closed, same_loss = head.gradients(problem.params, head.visit.data, names)
        assert_near(closed, by_autograd)
        assert float(same_loss) == pytest.approx(float(loss), rel=1e-12)
        assert float(head.loss(problem.params, head.visit.data)) == pytest.approx(float(loss), rel=1e-12)


# (7) Passes through the network

PASSES: list[int] = []


class Counting(TinyNetwork):
    """Notes the number of examples of each pass."""

    def forward(self, inputs):
        PASSES.append(len(inputs))
        return super().forward(inputs)


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({"tau": 1}, 1),
        ({"tau": 2}, 2),
        ({"tau": 7}, 2),
        ({"tau": 50}, 2),
        ({"tau": 7, "solver": "newton"}, 2),
        ({"tau": 7, "cache_features": False}, 7),
    ],
    ids=str,
)
def test_two_passes_per_client_and_round_for_every_tau_above_one(options, passes):
    """By the report, and by counting the examples that really went through: 28 over all clients."""
    PASSES.clear()
    run = play(pflego(**options), 2, module=network(Counting))
    assert [report.network_passes for report in run.reports] == [passes * 5] * 2
    assert sum(PASSES) == 2 * passes * 28


# Where the cache would be wrong, it is not used


class Dropped(TinyNetwork):
    def forward(self, inputs):
        return self.head(F.dropout(torch.tanh(self.body(inputs)), 0.5, self.training))


class HeadThenTemperature(TinyNetwork):
    def forward(self, inputs):
        return super().forward(inputs) / 3


class HeadTwice(TinyNetwork):
    def forward(self, inputs):
        return self.head(self.head(torch.tanh(self.body(inputs))))


class TiedBodies(nn.Module):
    """Two layers of the body have one weight between them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(INPUTS, HIDDEN)
        self.second, self.third = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.third.weight = self.second.weight
        self.head = nn.Linear(HIDDEN, 3)

    def forward(self, inputs):
        return self.head(torch.tanh(self.third(torch.tanh(self.second(torch.tanh(self.body(inputs)))))))


class TiedHead(nn.Module):
    """The head's weight is also that of a layer of the body; the head is registered first and so gives the name."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(HIDDEN, 3)
        self.body, self.second = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.second.weight = self.head.weight

    def forward(self, inputs):
        return self.head(torch.tanh(self.second(torch.tanh(self.body(inputs)))))


class BorrowedHead(TinyNetwork):
    """The body uses the head's weight without being tied to it by a parameter of its own."""

    def forward(self, inputs):
        hidden = torch.tanh(self.body(inputs))
        return self.head(torch.tanh(F.linear(hidden, self.head.weight)))


class CosineLinear(nn.Linear):
    """A linear layer by its class, none by what it computes."""

    def forward(self, inputs):
        return F.linear(F.normalize(inputs), F.normalize(self.weight), self.bias)


class CosineHead(TinyNetwork):
    def __init__(self) -> None:
        super().__init__()
        self.head = CosineLinear(HIDDEN, 3)


class BatchStatistics(NormedNetwork):
    """Normalises by each batch and keeps no running statistics: features depend on the batch they are in."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(HIDDEN, track_running_stats=False)


def smoothed(output, targets):
    return F.cross_entropy(output, targets, label_smoothing=0.1)


FALLBACKS = {
    "dropout": {"module": Dropped},
    "running statistics": {"module": NormedNetwork, "buffers": "shared"},
    "running statistics, personal": {"module": NormedNetwork, "buffers": "personal"},
    "something after the head": {"module": HeadThenTemperature},
    "head used twice": {"module": HeadTwice},
    "tied body": {"module": TiedBodies},
    "tied head": {"module": TiedHead, "personal": "head.*"},
    "two personal layers": {"module": TinyNetwork, "personal": "*"},
    "first layer personal": {"module": TinyNetwork, "personal": "first_layer"},
    "half of the head personal": {"module": TinyNetwork, "personal": "head.weight"},
    "another loss": {"module": TinyNetwork, "loss": smoothed},
    "head's weight used in the body": {"module": BorrowedHead},
    "subclass of a linear layer": {"module": CosineHead},
    "statistics of each mini-batch": {"module": BatchStatistics, "batch": 4, "sizes": (8, 6, 7, 10, 12)},
}
NEVER_LINEAR = {what: options for what, options in FALLBACKS.items() if what != "statistics of each mini-batch"}
"""Newton's steps are on all examples at once, where such statistics stay still."""


@pytest.mark.parametrize("options", FALLBACKS.values(), ids=FALLBACKS.keys())
def test_where_features_would_not_stay_still_the_cache_changes_nothing(options):
    options = dict(options)
    cached, uncached = pair(module=network(options.pop("module")), rounds=2, **options)
    assert_same_bits(cached.shared, uncached.shared)
    for client in range(5):
        assert_same_bits(cached.final[client], uncached.final[client])
    assert cached.reports == uncached.reports


@pytest.mark.parametrize("options", NEVER_LINEAR.values(), ids=NEVER_LINEAR.keys())
def test_newton_refuses_what_is_no_linear_head_on_still_features(options):
    options = dict(options)
    module, loss = network(options.pop("module")), options.pop("loss", F.cross_entropy)
    with pytest.raises(InvalidModel):
        play(pflego(solver="newton", tau=3, **options), 1, module=module, loss=loss)


# (6) The loss of the head


def losses_by_step(method, client, num_steps, sizes):
    """The loss on one client after 0, 1, 2, ... of the steps before the last."""
    run = play(method, 0, population=federation(sizes))
    inner, visit, start = method.local[0], run.visit(client), run.model(client)
    binding, batch = run.program.binding(client), run.population.batches[client]
    paths = [run_phases((replace(inner, budget=steps(k)),), binding, visit, start)[0] for k in range(num_steps + 1)]
    return [float(client_loss(params, batch)) for params in paths], paths


def head_bound(params, batch) -> float:
    """The loss has Hessian mean of (diag p - p p^T) (x) phi phi^T, and diag p - p p^T is at most 1/2."""
    hidden = torch.tanh(batch.inputs @ params["body.weight"].T + params["body.bias"])
    features = torch.cat([hidden, torch.ones(len(hidden), 1, dtype=hidden.dtype)], dim=1)
    return 0.5 * float(torch.linalg.eigvalsh(features.T @ features / len(features))[-1])


@pytest.mark.parametrize("client", range(5))
def test_steps_below_two_over_the_bound_never_increase_the_heads_loss(client):
    run = play(pflego(), 0)
    bound = head_bound(run.model(client), run.population.batches[client])
    losses, _ = losses_by_step(pflego(client_lr=1.99 / bound), client, 25, SIZES)
    assert all(after <= before for before, after in pairwise(losses))
    assert losses[-1] < 0.9 * losses[0]


def test_far_longer_steps_do_increase_it():
    """So that the test above can fail: the bound is a bound, not a wish."""
    run = play(pflego(), 0, population=federation(LARGE))
    bound = head_bound(run.model(0), run.population.batches[0])
    losses, _ = losses_by_step(pflego(client_lr=40 / bound), 0, 25, LARGE)
    assert any(after > before for before, after in pairwise(losses))


@pytest.mark.parametrize("sizes", [SIZES, LARGE], ids=["separable", "not separable"])
@pytest.mark.parametrize("client", range(5))
def test_newton_never_increases_the_heads_loss(client, sizes):
    losses, _ = losses_by_step(pflego(solver="newton"), client, 12, sizes)
    assert all(after <= before for before, after in pairwise(losses))
    assert losses[1] < losses[0]


def test_newton_shortens_a_step_that_would_increase_the_loss():
    """With a head thirty times as large every class is certain, the loss nearly flat, and a full step goes too far."""
    run = play(pflego(solver="newton"), 0, population=federation(LARGE))
    inner, batch = run.program.method.local[0], run.population.batches[0]
    far = run.model(0) | {name: 30 * value for name, value in run.final[0].items()}
    problem = Problem(phase=inner, visit=run.visit(0), binding=run.program.binding(0), params=far)
    head = on_features(problem)
    features, weights, targets = with_ones(head), joined(head), batch.targets
    value, grad, probabilities = expansion(features, weights, targets)
    full_step = weights - inner.solver._direction(features, probabilities, grad)
    assert F.cross_entropy(features @ full_step.T, targets) > value

    losses = [float(client_loss(far, batch))]
    for num_steps in range(1, 9):
        some = replace(inner, budget=steps(num_steps))
        reached = run_phases((some,), run.program.binding(0), run.visit(0), far)[0]
        losses.append(float(client_loss(reached, batch)))
    assert all(after <= before for before, after in pairwise(losses))
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("client", range(5))
def test_newton_reaches_the_best_head(client):
    """Its gradient is below the tolerance of 1e-7, and no loss is lower by L-BFGS (to g^2 / curvature, about 1e-12)."""
    losses, paths = losses_by_step(pflego(solver="newton"), client, 8, LARGE)
    batch = federation(LARGE).batches[client]
    grads = part_of(gradient(client_loss, paths[-1], batch), HEAD)
    assert all(float(grad.norm()) <= 1e-7 for grad in grads.values())

    weights = {name: paths[0][name].clone().requires_grad_() for name in HEAD}
    lbfgs = torch.optim.LBFGS(
        weights.values(), max_iter=500, tolerance_grad=1e-12, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def closure():
        lbfgs.zero_grad()
        loss = client_loss(paths[0] | weights, batch)
        loss.backward()
        return loss

    lbfgs.step(closure)
    assert losses[-1] == pytest.approx(closure().item(), rel=1e-11)
    assert losses[-1] < losses[0] - 1e-3


def test_newton_reaches_what_thousands_of_plain_steps_reach():
    """3000 steps of length 1 / bound, of which Newton needs a handful."""
    losses, paths = losses_by_step(pflego(solver="newton"), 2, 6, LARGE)
    batch = federation(LARGE).batches[2]
    run = play(pflego(client_lr=1 / head_bound(paths[0], batch), tau=3001), 0, population=federation(LARGE))
    inner = run.program.method.local[:1]
    plain = float(client_loss(run_phases(inner, run.program.binding(2), run.visit(2), run.model(2))[0], batch))
    assert losses[-1] == pytest.approx(plain, rel=1e-9)
    assert losses[-1] <= plain * (1 + 1e-11)


def test_newton_works_without_a_bias_too():
    module = network(NoBias)
    run = play(pflego(solver="newton", tau=8), 1, population=federation(LARGE), module=module)
    inner = run.program.method.local[0]
    problem = Problem(phase=inner, visit=run.visit(0), binding=run.program.binding(0), params=run.model(0))
    reached = inner.solver(problem).params
    grads, _ = problem.gradients(reached, problem.visit.data, ["head.weight"])
    assert float(grads["head.weight"].norm()) <= 1e-7
