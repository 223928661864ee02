"""The steps of a phase on convolutions by channels, where that gives the same and torch can do it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from plures.core.layout import FEW, has_convolutions, is_kernel, kernels_by_channels
from plures.core.method import View, own_parameters
from plures.core.problem import Outcome, Problem
from plures.core.types import Batch, Params
from plures.engines.prefix_checks import difference
from plures.engines.prefix_tracer import FAILURES
from plures.engines.prefix_trials import unmoved_draws
from plures.local.heads import HeadProblem

GROUP_NORMS = ("group_norm", "native_group_norm")

_KNOWN: WeakKeyDictionary[nn.Module, dict[Hashable, bool]] = WeakKeyDictionary()


def by_channels(problem: Problem) -> Problem | None:
    """The same problem by channels; None for networks without convolutions, or that count on the usual order."""
    if isinstance(problem, HeadProblem) or not has_convolutions(problem.binding.task.module):
        return None
    known = _KNOWN.setdefault(problem.binding.task.module, {})
    key = (type(problem), problem.phase.view, *gradient_names(problem))
    if key not in known:
        known[key] = can_do(problem)
    return turned(problem) if known[key] else None


def turned(problem: Problem) -> Problem:
    view, phase = problem.phase.view, problem.phase
    if view is not own_parameters:
        phase = replace(phase, view=ShownByChannels(view))
    return replace(problem, phase=phase, params=kernels_by_channels(problem.params))


@dataclass(frozen=True)
class ShownByChannels:
    """A view whose kernels are by channels: products with masks forget the order of those with one channel."""

    view: View

    def __call__(self, params: Params, inputs: Tensor) -> Params:
        return kernels_by_channels(self.view(params, inputs))


def can_do(problem: Problem) -> bool:
    """Whether a first step by channels is the same; a network that takes views of its values may refuse."""
    data = problem.visit.data
    if not data.num_examples:
        return False
    rows = torch.arange(FEW, device=data.inputs.device) % data.num_examples
    few = Batch(data.inputs[rows], data.targets[rows])
    small = replace(problem, visit=replace(problem.visit, data=few), taken=[])
    with unmoved_draws():
        try:
            return not ends_badly(turned(small)) and not difference(small, turned(small))
        except FAILURES:
            return False


def ends_badly(problem: Problem) -> bool:
    """Whether torch would crash: a group norm by channels asks for gradients of its weights, but not of its inputs."""
    point = {name: problem.params[name].detach().requires_grad_() for name in gradient_names(problem)}
    buffers = {name: problem.params[name].clone() for name in problem.binding.task.buffers}
    seen = GroupNorms()
    with seen:
        problem.loss(problem.params | buffers | point, problem.visit.data)
    return seen.without_inputs


def gradient_names(problem: Problem) -> tuple[str, ...]:
    return (*problem.moving_names(), *problem.observed_names())


class GroupNorms(TorchFunctionMode):
    """Watches group norms, of layers or not."""

    def __init__(self) -> None:
        super().__init__()
        self.without_inputs = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, Tensor)]
        if getattr(func, "__name__", "") in GROUP_NORMS and given and not given[0].requires_grad:
            self.without_inputs |= any(value.requires_grad for value in given[1:])
        return func(*args, **(kwargs or {}))


def turned_back(problem: Problem, outcome: Outcome) -> Outcome:
    """What a phase leaves behind in the usual order; kernels that it does not move are those that were given."""
    moved = set(problem.moving_names())
    kernels = {
        name: usual(value) if name in moved else problem.params[name]
        for name, value in outcome.params.items()
        if is_kernel(value)
    }
    observed = {name: usual(value) if is_kernel(value) else value for name, value in outcome.observed.items()}
    return outcome._replace(params=outcome.params | kernels, observed=observed)


def usual(value: Tensor) -> Tensor:
    """A copy in the usual order; `contiguous` would take a kernel with one channel for one already."""
    return value.clone(memory_format=torch.contiguous_format)
