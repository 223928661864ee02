"""What must be known of a phase before its network is cut, and whether a cut network does what the whole one does."""

from __future__ import annotations

import torch

from plures.core.method import own_parameters
from plures.core.problem import Problem, eager_gradient
from plures.core.seeds import generator
from plures.core.types import Params
from plures.engines.prefix_trials import largest, random_state, tolerance


def moving_names(problem: Problem) -> frozenset[str] | str:
    """Names that the network sees change in the phase, or whose gradient is asked for."""
    task, moved = problem.binding.task, {*problem.moving_names(), *problem.observed_names()}
    if problem.phase.view is own_parameters:
        moving = frozenset(moved.intersection(task.names))
    else:
        before = random_state()
        moving = changed_by_view(problem, sorted(moved))
        if random_state() != before:
            return "the view draws random numbers"
    if moving.issuperset(task.parameters):
        return "all of the network moves"
    return moving or "nothing moves that the network sees"


def changed_by_view(problem: Problem, moved: list[str]) -> frozenset[str]:
    """Of what a view shows, all that depends on what moves, with a gradient or without, or on the inputs."""
    view, params, inputs = problem.phase.view, problem.params, problem.visit.data.inputs
    leaves = {name: params[name].detach().requires_grad_() for name in moved}
    draws = generator(0, "other values")
    # Values of either sign, for no gradient tells of a threshold.
    others = {name: torch.randn(params[name].shape, generator=draws).to(params[name]) for name in moved}
    opposites = {name: -value for name, value in others.items()}
    shown = view(params | leaves, inputs)
    with torch.no_grad():
        given = [(params | others, inputs), (params | opposites, inputs), (params, inputs[:1]), (params, inputs[-1:])]
        variants = [view(*each) for each in given]
    return frozenset(
        name
        for name in problem.binding.task.names
        if shown[name].requires_grad or not all(torch.equal(shown[name], other[name]) for other in variants)
    )


def difference(whole: Problem, cut: Problem) -> str:
    """What the first step of one problem does otherwise than that of the other; empty if nothing."""
    (wanted, state), (found, own_state) = (first_step(problem) for problem in (whole, cut))
    if state != own_state:
        return "the cut network draws other random numbers than the whole one"
    near = tolerance(whole.binding.task.dtype)
    grads = {*whole.moving_names(), *whole.observed_names()}
    scale = max(largest(wanted[name]) for name in grads)
    for name, value in wanted.items():
        size = scale if name in grads else largest(value)
        if not torch.allclose(found[name], value, rtol=near, atol=near * size, equal_nan=True):
            return f"the cut network does not do what the whole one does ({name} differs)"
    return ""


def first_step(problem: Problem) -> tuple[Params, list[bytes]]:
    """Gradients, loss and running statistics after one look at all examples, and the random state after it."""
    torch.manual_seed(0)
    buffers = {name: problem.params[name].clone() for name in problem.binding.task.buffers}
    params, data = problem.params | buffers, problem.visit.data
    point = {name: params[name] for name in (*problem.moving_names(), *problem.observed_names())}
    grads, loss = eager_gradient(lambda watched: problem.loss(params | watched, data), point)
    return {"loss": loss} | grads | buffers, random_state()
