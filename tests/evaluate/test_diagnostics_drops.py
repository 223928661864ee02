"""Diagnostics: by how much each phase lowers the loss, against plain loops and whole rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from plures.core.types import Batch, Params
from plures.local import epochs, sgd, steps
from plures.methods import fedavg, pflego
from tests.evaluate.test_curvature import measured
from tests.evaluate.test_diagnostics import Dropping
from tests.helpers.methods import (
    HEAD,
    network,
    play,
)


def head_descended(params: Params, batch: Batch, lr: float, count: int) -> Params:
    """Plain full-batch gradient descent on the head."""
    for _ in range(count):
        leaves = {name: params[name].clone().requires_grad_() for name in HEAD}
        loss = F.cross_entropy(functional_call(network(), params | leaves, (batch.inputs,)), batch.targets)
        grads = torch.autograd.grad(loss, list(leaves.values()))
        params = params | {name: params[name] - lr * grad for name, grad in zip(HEAD, grads, strict=True)}
    return params


def loss_of(params: Params, batch: Batch) -> float:
    return float(F.cross_entropy(functional_call(network(), params, (batch.inputs,)), batch.targets))


def test_inner_steps_of_pflego_lower_the_loss_by_as_much_as_a_plain_loop():
    """tau - 1 = 4 inner steps, then one at the server's rate of 0.1, by preset `exact` times n_i / n of all clients."""
    run = play(pflego(tau=5, client_lr=0.05, server=0.1, preset="exact"), 2)
    inner, joint = [], []
    for client, batch in enumerate(run.population.batches):
        arrived = run.model(client)
        moved = head_descended(arrived, batch, lr=0.05, count=4)
        last = head_descended(moved, batch, lr=0.1 * batch.num_examples / run.population.total_examples, count=1)
        inner.append(loss_of(arrived, batch) - loss_of(moved, batch))
        joint.append(loss_of(moved, batch) - loss_of(last, batch))
    found = measured(run)
    assert found["loss_drop/personal"] > 0
    assert found["loss_drop/personal"] == pytest.approx(sum(inner) / 5, rel=1e-12)
    assert found["loss_drop/personal observing shared"] == pytest.approx(sum(joint) / 5, rel=1e-12)


MINI_BATCHES = fedavg(budget=epochs(2, batch=3))
SHARES_OF_THE_COHORT = pflego(tau=3, client_lr=0.05, server=sgd(0.1), alpha_norm="round", alpha_in_head=True)


@pytest.mark.parametrize("method", [MINI_BATCHES, SHARES_OF_THE_COHORT], ids=["mini-batches", "shares of the cohort"])
def test_drops_are_those_of_the_next_round_with_everybody_in_it(method):
    """By the rates, batches and dropout that clients then have in round 3, to the last bits of the sums."""
    before, after = (play(method, rounds, module=network(Dropping)) for rounds in (2, 3))
    drops = [
        loss_of(before.model(visit.client), visit.data) - loss_of(result.trained, visit.data)
        for visit, result in after.results[-5:]
    ]
    found = [value for name, value in measured(before).items() if name.startswith("loss_drop/")]
    assert len(found) == len(method.local)
    assert sum(found) == pytest.approx(sum(drops) / 5, rel=1e-12)


def test_a_network_that_draws_while_it_is_looked_at_trains_as_it_would():
    class Drawing(Dropping):
        """Draws in evaluation too, to no effect."""

        def forward(self, inputs: Tensor) -> Tensor:
            if not self.training:
                torch.rand(1)
            return super().forward(inputs)

    found = [measured(play(MINI_BATCHES, 1, module=network(module))) for module in (Dropping, Drawing)]
    assert found[0]["loss_drop/shared"] == found[1]["loss_drop/shared"]


def test_phases_of_one_name_are_told_apart_as_in_the_reports_of_rounds():
    base = fedavg(budget=steps(1))
    run = play(replace(base, local=base.local * 3), 1)
    told = [name for name in measured(run) if name.startswith("loss_drop/")]
    assert told == [f"loss_drop/{name}" for name in run.reports[0].losses]
    assert len(told) == 3


def test_a_penalty_is_no_part_of_the_drop():
    """Both phases go the same way; a penalty that is constant changes no step."""
    base = fedavg(budget=steps(2))
    fined = replace(base.local[0], penalty=lambda params, visit: torch.tensor(7.0))
    found = [measured(play(method, 0)) for method in (base, replace(base, local=(fined,)))]
    assert found[0] == pytest.approx(found[1], rel=1e-12, nan_ok=True)
