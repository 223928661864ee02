"""Convolutions by channels: the same steps, the usual order afterwards, and networks that cannot be turned."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from plures.core.client import arrival
from plures.core.layout import has_convolutions, output_by_channels
from plures.core.problem import Problem, plain_steps
from plures.core.seeds import generator
from plures.core.types import Batch
from plures.engines import layout
from plures.engines.cached import Cached, cached_steps
from plures.engines.layout import by_channels, turned_back
from plures.local import epochs, sgd
from plures.methods import apfl, fedavg, fedem, fedper, fedprox, fedrep, fedspa, heterofl, pfedgate
from plures.models import leaf_cnn, lenet5, resnet8_gn
from plures.parts import conv_adapters
from tests.helpers.methods import Population, assert_near, network, play


class Viewing(nn.Module):
    """Takes a view of what the convolution gives, which only the usual order allows."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(1, 2, 3), nn.Linear(2 * 6 * 6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.body(inputs)
        return self.head(found.view(len(inputs), -1))


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4 * 6 * 6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.body(inputs))).flatten(1))


class Normed(Grouped):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)


def images(channels: int = 1, side: int = 8) -> Population:
    draws = generator(3, "images")
    return Population(
        [
            Batch(
                torch.randn(size, channels, side, side, generator=draws, dtype=torch.float64),
                torch.randint(3, (size,), generator=draws),
            )
            for size in (5, 8, 3)
        ]
    )


def problem_of(make, method) -> Problem:
    run = play(method, 1, population=images(), module=network(make))
    binding, visit = run.program.binding(0), run.visit(0)
    return Problem(phase=method.local[0], visit=visit, binding=binding, params=arrival(binding, visit))


MINI = epochs(2, batch=3)
GATED = pfedgate(
    budget=MINI, lr=sgd(0.1, momentum=0.9), gate_lr=0.1, density=0.6, splits=3, pre_norm=False, post_norm=False
)
CASES = {
    "fedavg": (Grouped, fedavg(budget=MINI)),
    "momentum": (Grouped, fedavg(budget=MINI, lr=sgd(0.1, momentum=0.9))),
    "a pull to what was received": (Grouped, fedprox(budget=MINI)),
    "own running statistics": (Normed, fedavg(budget=MINI, buffers="personal")),
    "body and head in turn": (Grouped, fedrep(budget=MINI, head_budget=MINI)),
    "masks": (Grouped, fedspa(budget=MINI)),
    "gates": (Grouped, GATED),
    "a mixture": (Grouped, fedem(budget=MINI, components=2, clip_norm=0.5)),
    "narrower networks": (Grouped, heterofl(budget=MINI, width=0.5)),
    "two losses": (Grouped, apfl(budget=MINI)),
    "a network that refuses": (Viewing, fedavg(budget=MINI)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_round_by_channels_is_that_of_the_plain_engine(name):
    make, method = CASES[name]
    fast, slow = (play(method, 2, population=images(), module=network(make), engine=e) for e in (Cached(), None))
    assert_near(fast.shared, slow.shared, 1e-10)
    for client, state in slow.final.items():
        assert_near(fast.final[client], state, 1e-10)


@pytest.mark.parametrize(
    "make",
    [
        lambda: leaf_cnn(shape=(1, 16, 16), classes=3),
        lambda: lenet5(shape=(1, 16, 16), classes=3),
        lambda: conv_adapters(resnet8_gn(shape=(1, 16, 16), classes=3)),
    ],
    ids=["leaf_cnn", "lenet5", "resnet8_gn with adapters"],
)
def test_networks_of_the_papers_are_trained_by_channels_to_the_same_numbers(make):
    method, population = fedper(budget=epochs(1, batch=4)), images(side=16)
    run = play(method, 1, population=population, module=network(make))
    binding, visit = run.program.binding(0), run.visit(0)
    problem = Problem(phase=method.local[0], visit=visit, binding=binding, params=arrival(binding, visit))
    assert by_channels(problem) is not None
    assert_near(cached_steps(problem).params, plain_steps(problem).params, 1e-10)


def test_kernels_with_one_channel_are_turned_too():
    turned = by_channels(problem_of(Grouped, fedavg(budget=MINI)))
    assert turned is not None
    assert turned.params["body.weight"].stride() == (9, 1, 3, 1)  # of shape (4, 1, 3, 3): rows of one channel


def test_what_a_phase_leaves_behind_is_in_the_usual_order():
    problem = problem_of(Grouped, fedavg(budget=MINI))
    outcome = cached_steps(problem)
    assert all(value.is_contiguous() for value in outcome.params.values())
    assert outcome.params["body.weight"].stride() == problem.params["body.weight"].stride()


def test_kernels_that_do_not_move_are_those_that_were_given():
    problem = problem_of(Grouped, fedrep(budget=MINI, head_budget=MINI))
    assert problem.moving_names() == ["head.weight", "head.bias"]
    turned = by_channels(problem)
    assert turned is not None
    back = turned_back(problem, plain_steps(turned))
    assert back.params["body.weight"] is problem.params["body.weight"]


def test_a_network_that_takes_views_is_left_as_it_is():
    assert by_channels(problem_of(Viewing, fedavg(budget=MINI))) is None


def test_group_norms_behind_frozen_convolutions_are_left_as_they_are():
    # torch 2.13 crashes there: gradients for the weights of a group norm by channels, none for its inputs.
    problem = problem_of(Grouped, fedper(budget=MINI, personal=["norm.*", "head.*"]))
    personal = replace(problem, phase=replace(problem.phase, train="personal"))
    assert "norm.weight" in personal.moving_names()
    assert "body.weight" not in personal.moving_names()
    assert by_channels(personal) is None


def test_it_is_tried_once_for_a_network_and_what_moves(monkeypatch):
    problem, tries = problem_of(Grouped, fedavg(budget=MINI)), []
    monkeypatch.setattr(layout, "can_do", lambda problem: tries.append(1) or True)
    for _ in range(3):
        by_channels(problem)
    assert len(tries) == 1


@pytest.mark.parametrize("make", [Grouped, Viewing])
def test_outputs_by_channels_are_those_of_the_network(make):
    problem = problem_of(make, fedavg(budget=MINI))
    task, inputs = problem.binding.task, problem.visit.data.inputs
    task.train(False)
    with torch.inference_mode():
        found = output_by_channels(task, problem.params, inputs)
        torch.testing.assert_close(found, task.output(problem.params, inputs), rtol=1e-12, atol=1e-12)


def test_networks_without_convolutions_have_nothing_to_turn():
    assert not has_convolutions(network())
    assert has_convolutions(Viewing())
