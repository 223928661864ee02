"""Large batches in portions: the same steps, and networks and phases whose batches must stay whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from plures.core import layout as core_layout
from plures.core.client import arrival
from plures.core.layout import PORTION, output_by_channels, portions
from plures.core.problem import Problem, plain_steps
from plures.core.seeds import generator
from plures.core.task import Task
from plures.core.types import Batch
from plures.engines import portions as engine_portions
from plures.engines.cached import cached_steps
from plures.engines.portions import InPortions, in_portions
from plures.local import FULL, epochs, sgd, steps
from plures.methods import fedavg, fedprox, fedspa, pflego
from tests.helpers.methods import Population, assert_near, network, play

LARGE = 2 * PORTION + 9
"""Examples: three portions of unequal size."""


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(1, 3, 3), nn.Linear(3 * 4 * 4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.relu(self.body(inputs)).flatten(1))


class Mixing(Plain):
    """What becomes of an example depends on the others."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs - inputs.mean(dim=0))


class Dropping(Plain):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(inputs, 0.5, self.training))


class Normed(Plain):
    """Keeps running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(self.norm(inputs))


def drawn(size: int) -> Batch:
    draws = generator(5, "images")
    inputs = torch.randn(size, 1, 6, 6, generator=draws, dtype=torch.float64)
    return Batch(inputs, torch.randint(3, (size,), generator=draws))


def problem_of(make: Callable[[], nn.Module], method, phase: int = 0, size: int = LARGE) -> Problem:
    run = play(method, 1, population=Population([drawn(size)]), module=network(make))
    binding, visit = run.program.binding(0), run.visit(0)
    return Problem(phase=method.local[phase], visit=visit, binding=binding, params=arrival(binding, visit))


WHOLE = steps(4, FULL)
CASES = {
    "fedavg": (fedavg(budget=WHOLE), 0),
    "momentum and a limit": (fedavg(budget=WHOLE, lr=sgd(0.1, momentum=0.9), clip_norm=0.1), 0),
    "a pull to what was received": (fedprox(budget=WHOLE, mu=0.5), 0),
    "a gradient that is sent": (pflego(tau=3), 1),
    "large batches of an epoch": (fedavg(budget=epochs(2, batch=PORTION + 40)), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_on_portions_are_those_on_whole_batches(name, monkeypatch):
    method, phase = CASES[name]
    problem = problem_of(Plain, method, phase)
    divided = count_divided(monkeypatch)

    found, wanted = cached_steps(problem), plain_steps(problem)

    assert divided
    assert_near(found.params, wanted.params)
    assert_near(found.observed, wanted.observed)
    assert found.loss == pytest.approx(float(wanted.loss), rel=1e-12)
    assert found.passes == wanted.passes
    assert problem.taken == 2 * problem.taken[: len(problem.taken) // 2]


def count_divided(monkeypatch) -> list[int]:
    seen: list[int] = []
    usual = InPortions.divided

    def divided(self, params, batch, names):
        seen.append(batch.num_examples)
        return usual(self, params, batch, names)

    monkeypatch.setattr(InPortions, "divided", divided)
    return seen


@pytest.mark.parametrize(("make", "tries"), [(Mixing, [LARGE]), (Dropping, [])])
def test_examples_that_depend_on_each_other_or_on_draws_stay_together(make, tries, monkeypatch):
    problem = problem_of(make, fedavg(budget=WHOLE))
    divided = count_divided(monkeypatch)

    outcomes = []
    for take in (cached_steps, plain_steps):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            outcomes.append(take(problem))

    assert_near(outcomes[0].params, outcomes[1].params)
    assert divided == tries
    assert engine_portions._KNOWN[problem.binding.task.module] is False


@pytest.mark.parametrize(
    ("make", "method", "size"),
    [
        (Normed, fedavg(budget=WHOLE, buffers="personal"), LARGE),
        (Plain, fedspa(budget=WHOLE), LARGE),
        (Plain, fedavg(budget=WHOLE), PORTION),
        (partial(nn.Sequential, nn.Flatten(), nn.Linear(36, 3)), fedavg(budget=WHOLE), LARGE),
    ],
    ids=["running statistics", "a view", "no more than a portion", "no convolution"],
)
def test_problems_that_are_not_divided(make, method, size):
    problem = problem_of(make, method, size=size)

    assert in_portions(problem) is problem


def test_the_first_answer_is_that_of_all_others():
    """A process that starts in the middle of a run has other first batches, and must give the same bits."""
    problem = problem_of(Plain, fedavg(budget=WHOLE))
    divided = in_portions(problem)
    names = problem.moving_names()

    first = divided.gradients(problem.params, problem.visit.data, names)
    again = divided.gradients(problem.params, problem.visit.data, names)

    assert all(torch.equal(first[0][name], again[0][name]) for name in names)
    assert torch.equal(first[1], again[1])


@pytest.mark.parametrize(("make", "apart"), [(Plain, True), (Mixing, False), (Normed, True), (Dropping, True)])
def test_answers_in_portions_are_those_to_all_at_once(make, apart, monkeypatch):
    """In evaluation mode nothing is drawn, and statistics are those that were kept."""
    task = Task(network(make), nn.functional.cross_entropy, torch.device("cpu"))
    task.train(False)
    params, inputs = task.parameters | task.buffers, drawn(LARGE).inputs
    sizes: list[int] = []
    usual = Task.output

    def output(self, params, inputs):
        sizes.append(len(inputs))
        return usual(self, params, inputs)

    monkeypatch.setattr(Task, "output", output)
    wanted = usual(task, params, inputs)
    for _ in range(2):
        sizes.clear()
        torch.testing.assert_close(output_by_channels(task, params, inputs), wanted)

    assert sizes == ([len(one) for one in portions(inputs)] if apart else [LARGE])
    assert core_layout._APART[task.module] is apart


def test_portions_are_about_as_large():
    assert [len(one) for one in portions(torch.zeros(LARGE))] == [89, 88, 88]
    assert [len(one) for one in portions(torch.zeros(PORTION))] == [PORTION]
