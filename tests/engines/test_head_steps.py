"""Heads on all features of a client at once: the steps are those of autograd, and others are left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plures.core.problem import Problem, plain_steps
from plures.core.types import Batch
from plures.engines import head_steps as heads
from plures.engines.head_steps import head_steps
from plures.local import FULL, epochs, sgd, steps
from plures.local.heads import HeadProblem
from plures.methods import finetune
from tests.helpers.methods import assert_near, network, play


class Headed(nn.Module):
    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3, bias=bias)

    def forward(self, inputs):
        return self.head(torch.tanh(self.body(inputs)))


def head_problem(*, bias: bool = True, budget=None, optimizer=None, examples: int = 9) -> HeadProblem:
    """The head phase of a client on features of its own."""
    module = network(lambda: Headed(bias=bias))
    run = play(finetune(personal="head"), 1, module=module)
    phase = replace(run.program.method.adapt[0], budget=budget or steps(7), optimizer=optimizer or sgd(0.3))
    draws = torch.Generator().manual_seed(1)
    features = torch.randn(examples, 6, generator=draws, dtype=torch.float64)
    data = Batch(features, torch.randint(3, (examples,), generator=draws))
    visit = replace(run.visit(0), data=data)
    params = {name: value.clone() for name, value in run.model(0).items()}
    return HeadProblem(
        phase=phase,
        visit=visit,
        binding=run.program.binding(0),
        params=params,
        weight="head.weight",
        bias="head.bias" if bias else None,
    )


RULES = {
    "plain": sgd(0.3),
    "weight decay": sgd(0.3, weight_decay=0.2),
    "momentum": sgd(0.3, momentum=0.9),
    "momentum and decay": sgd(0.3, momentum=0.8, weight_decay=0.2),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", RULES)
def test_steps_on_all_features_are_those_of_the_plain_loop(name, bias):
    problem = head_problem(bias=bias, optimizer=RULES[name])
    fast, slow = head_steps(problem), plain_steps(problem)
    assert fast is not None
    assert_near(fast.params, slow.params, 1e-12)
    assert float(fast.loss) == pytest.approx(float(slow.loss), rel=1e-12)
    assert fast.passes == slow.passes == 7.0


def test_gradients_are_those_of_autograd():
    problem = head_problem(budget=steps(2))
    fast = head_steps(problem)
    weight, bias = (problem.params[name].clone().requires_grad_() for name in ("head.weight", "head.bias"))
    for _ in range(2):
        loss = F.cross_entropy(F.linear(problem.visit.data.inputs, weight, bias), problem.visit.data.targets)
        grads = torch.autograd.grad(loss, (weight, bias))
        moved = (weight - 0.3 * grads[0], bias - 0.3 * grads[1])
        weight, bias = (value.detach().requires_grad_() for value in moved)
    assert_near(fast.params, problem.params | {"head.weight": weight.detach(), "head.bias": bias.detach()}, 1e-12)


def test_losses_are_the_same_however_many_steps_they_are_read_from(monkeypatch):
    problem = head_problem(budget=steps(8))
    together = head_steps(problem)
    monkeypatch.setattr(heads, "LIKELIHOODS", 3 * 9 * 3)  # three steps of nine examples and three classes
    assert float(head_steps(problem).loss) == pytest.approx(float(together.loss), rel=1e-14)


@pytest.mark.parametrize(
    "problem",
    [
        lambda: head_problem(budget=epochs(2, batch=4)),
        lambda: head_problem(budget=steps(1, batch=FULL)),
        lambda: head_problem(optimizer=sgd(0.3, momentum=0.9, nesterov=True)),
        lambda: replace(head_problem(), phase=replace(head_problem().phase, clip_norm=0.1)),
    ],
    ids=["mini-batches", "a single step", "nesterov", "clipped"],
)
def test_what_is_more_than_plain_steps_on_everything_is_left_alone(problem):
    assert head_steps(problem()) is None


def test_a_problem_with_a_network_is_none_of_its_business():
    run = play(finetune(personal="head"), 1)
    problem = Problem(
        phase=run.program.method.adapt[0], visit=run.visit(0), binding=run.program.binding(0), params=run.model(0)
    )
    assert head_steps(problem) is None
