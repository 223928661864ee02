"""Expectation and maximisation on one client: what belongs to whom, losses of single examples, weighted gradients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plures.core.goals import squared_error
from plures.core.problem import Problem
from plures.core.seeds import global_draws
from plures.core.types import Batch
from plures.local import mixture, steps
from plures.local.mixture import belonging, counted, losses_apart, mixture_loss
from plures.methods import fedem
from tests.helpers.methods import NormedNetwork, Population, TinyNetwork, federation, network, play

DRAWS = torch.Generator().manual_seed(5)
LOSSES = 3 * torch.rand(20, 4, generator=DRAWS, dtype=torch.float64)
SHARES = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)


class Words(nn.Module):
    """Logits of 6 tokens at each of 4 places, from the token there."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 6)

    def forward(self, inputs):
        return self.table(inputs).movedim(-1, 1)


def problem_of(module=None, *, client=3, population=None, loss=F.cross_entropy, **options):
    """The first phase of client 3, which has 9 examples, before anything is trained."""
    run = play(fedem(**{"lr": 0.3, "budget": steps(1)} | options), 0, population=population, module=module, loss=loss)
    visit, binding = run.visit(client), run.program.binding(client)
    binding.task.train(True)
    return Problem(phase=run.program.method.local[0], visit=visit, binding=binding, params=run.model(client))


def apart(problem, make):
    """The components as networks of their own."""
    count = len(problem.params["mixing"])
    networks = [make().double() for _ in range(count)]
    for number, module in enumerate(networks):
        prefix = f"components.{number}."
        own = {name.removeprefix(prefix): v for name, v in problem.params.items() if name.startswith(prefix)}
        module.load_state_dict(own)
    return networks


# What belongs to whom


def test_belonging_by_hand_and_its_loss():
    """Likelihoods 1/2 and 1/4, shares 1/5 and 4/5: 1/10 to 1/5, so 1/3 and 2/3; together they are 3/10."""
    losses = torch.tensor([[2.0, 4.0]], dtype=torch.float64).log()
    shares = torch.tensor([0.2, 0.8], dtype=torch.float64)
    assert belonging(losses, shares)[0].tolist() == pytest.approx([1 / 3, 2 / 3], rel=1e-12)
    assert mixture_loss(losses, shares).exp().item() == pytest.approx(10 / 3, rel=1e-12)


def test_every_example_belongs_once_and_so_do_the_new_shares():
    q = belonging(LOSSES, SHARES)
    assert torch.allclose(q.sum(dim=1), torch.ones(20, dtype=torch.float64), rtol=1e-14)
    assert q.mean(dim=0).sum().item() == pytest.approx(1.0, rel=1e-14)
    assert (q > 0).all()


def test_repeated_steps_never_raise_the_loss_of_the_mixture():
    shares, found = SHARES, []
    for _ in range(60):
        found.append(mixture_loss(LOSSES, shares))
        shares = belonging(LOSSES, shares).mean(dim=0)
    falls = [float(before - after) for before, after in pairwise(found)]
    assert min(falls) >= -1e-15
    assert falls[0] > 1e-3
    assert found[0] - found[-1] > 1e-2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shares_of_zero_and_far_losses_give_numbers(dtype):
    losses = torch.tensor([[0.0, 1e4], [1e4, 0.0], [1e6, 1e6]], dtype=dtype)
    for shares in ([0.0, 1.0], [0.5, 0.5], [0.0, 0.0]):
        given = torch.tensor(shares, dtype=dtype)
        q = belonging(losses, given)
        assert torch.allclose(q.sum(dim=1), torch.ones(3, dtype=dtype))
        assert mixture_loss(losses, given).isfinite()
    assert belonging(losses, torch.tensor([0.5, 0.5], dtype=dtype)).tolist() == [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]


# Losses of single examples


def test_losses_are_those_of_each_example_alone_under_each_component():
    problem = problem_of()
    found, data = losses_apart(problem), problem.visit.data
    assert found.shape == (9, 3)
    for number, module in enumerate(apart(problem, TinyNetwork)):
        for place in range(9):
            alone = F.cross_entropy(module(data.inputs[place : place + 1]), data.targets[place : place + 1])
            assert found[place, number].item() == pytest.approx(alone.item(), rel=1e-12)


def test_the_loss_of_a_sequence_is_the_mean_over_its_tokens_and_padding_alone_says_nothing():
    tokens = torch.tensor([[3, 4, 5, 1], [2, 5, 0, 0], [0, 0, 0, 0]])
    population = Population([Batch(torch.tensor([[1, 3, 4, 5], [1, 2, 5, 0], [1, 0, 0, 0]]), tokens)])
    loss = partial(F.cross_entropy, ignore_index=0)
    problem = problem_of(network(Words), client=0, population=population, loss=loss)
    found = losses_apart(problem)
    for number, module in enumerate(apart(problem, Words)):
        logs = -F.log_softmax(module(problem.visit.data.inputs), dim=1)
        first = sum(logs[0, token, place] for place, token in enumerate([3, 4, 5, 1])) / 4
        second = (logs[1, 2, 0] + logs[1, 5, 1]) / 2
        assert found[:, number].tolist() == pytest.approx([first.item(), second.item(), 0.0], rel=1e-12)
    shares = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    assert torch.allclose(belonging(found, shares)[2], shares, rtol=1e-14)


def spoilt(problem, *broken):
    """The same problem with components that have no numbers any more."""
    starts = tuple(f"components.{number}." for number in broken)
    nans = {name: torch.full_like(v, torch.nan) for name, v in problem.params.items() if name.startswith(starts)}
    return replace(problem, params=problem.params | nans)


@pytest.mark.parametrize("broken", [(1,), (0, 2)], ids=str)
def test_a_component_whose_losses_are_no_numbers_is_not_taken_for_the_best_one(broken):
    whole = problem_of()
    problem = spoilt(whole, *broken)
    found, before = losses_apart(problem), losses_apart(whole)
    for number in range(3):
        wanted = torch.full_like(before[:, number], torch.nan) if number in broken else before[:, number]
        assert torch.equal(found[:, number].nan_to_num(-1.0), wanted.nan_to_num(-1.0))
    assert problem.phase.solver(problem).loss.isnan()  # so that the run is stopped


def test_examples_without_a_loss_under_any_component_count_equally():
    assert losses_apart(spoilt(problem_of(), 0, 1, 2)).tolist() == [[0.0] * 3] * 9


def test_values_of_one_output_are_compared_with_their_targets_one_by_one():
    batch = Batch(torch.randn(4, 3, generator=DRAWS, dtype=torch.float64), torch.arange(4.0, dtype=torch.float64))
    module = network(lambda: nn.Sequential(nn.Linear(3, 1)))
    problem = problem_of(module, client=0, population=Population([batch]), loss=squared_error, outputs="values")
    found = losses_apart(problem)
    for number, one in enumerate(apart(problem, lambda: nn.Sequential(nn.Linear(3, 1)))):
        assert torch.allclose(found[:, number], (one(batch.inputs)[:, 0] - batch.targets) ** 2, rtol=1e-12)


def test_examples_may_be_taken_a_few_at_a_time(monkeypatch):
    problem = problem_of()
    whole = losses_apart(problem)
    monkeypatch.setattr(mixture, "EXAMPLES_AT_ONCE", 2)
    assert torch.allclose(losses_apart(problem), whole, rtol=1e-13)


def test_dropout_is_off_while_examples_are_looked_at_and_on_again_afterwards():
    make = lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3))  # noqa: E731
    problem = problem_of(network(make))
    with global_draws(0, "test"):
        before = torch.get_rng_state()
        found = losses_apart(problem)
        assert torch.equal(torch.get_rng_state(), before)
    assert problem.binding.task.module.components[0][0].training
    (first, *_) = apart(problem, make)
    expected = F.cross_entropy(first.eval()(problem.visit.data.inputs), problem.visit.data.targets, reduction="none")
    assert torch.allclose(found[:, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("buffers", ["shared", "personal", "reset"])
def test_norms_take_their_running_statistics_or_those_of_the_examples_where_none_are_kept(buffers):
    problem = problem_of(network(NormedNetwork), buffers=buffers)
    before = {name: value.clone() for name, value in problem.params.items()}
    found, data = losses_apart(problem), problem.visit.data
    for number, module in enumerate(apart(problem, NormedNetwork)):
        output = module.train(buffers == "reset")(data.inputs)
        assert torch.allclose(found[:, number], F.cross_entropy(output, data.targets, reduction="none"), rtol=1e-12)
    assert all(torch.equal(value, before[name]) for name, value in problem.params.items())
    assert all(layer.training for layer in problem.binding.task.module.modules())


def test_statistics_of_the_examples_are_those_of_all_of_them_however_many_there_are():
    """More than go through the network at once where that makes no difference."""
    at_once = mixture.EXAMPLES_AT_ONCE
    many = at_once + 76
    problem = problem_of(network(NormedNetwork), client=0, population=federation([many]), buffers="reset")
    found, data = losses_apart(problem), problem.visit.data
    assert found.shape == (many, 3)
    for number, module in enumerate(apart(problem, NormedNetwork)):
        whole = F.cross_entropy(module.train()(data.inputs), data.targets, reduction="none")
        assert torch.allclose(found[:, number], whole, rtol=1e-10)
        first = F.cross_entropy(module(data.inputs[:at_once]), data.targets[:at_once], reduction="none")
        assert not torch.allclose(found[:at_once, number], first, rtol=1e-6)


def test_a_single_example_has_no_statistics_of_its_own():
    problem = problem_of(network(NormedNetwork), client=0, population=federation([1]), buffers="reset")
    (first, *_) = apart(problem, NormedNetwork)
    output = first.eval()(problem.visit.data.inputs)
    assert losses_apart(problem)[0, 0].item() == pytest.approx(
        F.cross_entropy(output, problem.visit.data.targets).item(), rel=1e-12
    )


# Weighted gradients


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4), (5,)])
def test_a_counted_output_is_the_output_and_its_gradient_counts_examples(shape):
    output = torch.randn(shape, generator=DRAWS, dtype=torch.float64, requires_grad=True)
    q = torch.rand(5, generator=DRAWS, dtype=torch.float64)
    shown = counted(output, q)
    assert torch.equal(shown, output)
    (grad,) = torch.autograd.grad((shown**3).sum(), output)
    wanted = sum(q[j] * (output[j] ** 3).sum() for j in range(5))
    (expected,) = torch.autograd.grad(wanted, output)
    assert torch.allclose(grad, expected, rtol=1e-13)
