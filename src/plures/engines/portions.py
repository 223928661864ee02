"""Gradients of large batches in portions, where that gives the same: what layers give then stays in the caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.layout import can_divide, is_large, portions
from plures.core.method import own_parameters
from plures.core.problem import Problem
from plures.core.types import Batch, Params
from plures.engines.prefix_trials import largest, random_state, tolerance

Gradients = tuple[Params, Tensor]

_KNOWN: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class InPortions(Problem):
    """A problem whose batches may be divided; the loss is a mean over examples, so shares of it are added up."""

    def gradients(self, params: Params, batch: Batch, names: list[str]) -> Gradients:
        module = self.binding.task.module
        if not is_large(batch.inputs) or not _KNOWN.get(module, True):
            return super().gradients(params, batch, names)
        if module in _KNOWN:
            self.taken.append(batch.num_examples)
            return self.divided(params, batch, names)
        before = random_state()
        whole = super().gradients(params, batch, names)
        _KNOWN[module] = random_state() == before and alike(whole, found := self.divided(params, batch, names))
        return found if _KNOWN[module] else whole

    def divided(self, params: Params, batch: Batch, names: list[str]) -> Gradients:
        point = {name: params[name] for name in names}
        sums: list[Tensor] = []
        total = torch.zeros((), dtype=self.binding.task.dtype)
        for inputs, targets in zip(portions(batch.inputs), portions(batch.targets), strict=True):
            some = Batch(inputs, targets)
            grads, loss = self.gradient(self.part(params, some, some.num_examples / batch.num_examples), point)
            sums = list(torch._foreach_add(sums, list(grads.values()))) if sums else list(grads.values())
            total = total + loss
        return dict(zip(point, sums, strict=True)), total

    def part(self, params: Params, some: Batch, share: float) -> Callable[[Params], Tensor]:
        return lambda watched: share * self.loss(params | watched, some)


def in_portions(problem: Problem) -> Problem:
    """The problem with batches that may be divided: each example has a class, and no running statistics are kept."""
    task = problem.binding.task
    suits = (
        type(problem) is Problem
        and problem.phase.view is own_parameters
        and task.loss_function is F.cross_entropy
        and problem.visit.data.targets.dim() == 1
        and not task.moving_buffers
        and is_large(problem.visit.data.inputs)
        and can_divide(task.module)
    )
    return InPortions(**{one.name: getattr(problem, one.name) for one in fields(problem)}) if suits else problem


def alike(whole: Gradients, divided: Gradients) -> bool:
    """Up to roundings; a network may mix the examples of a batch."""
    (wanted, loss), (found, own_loss) = whole, divided
    near = tolerance(loss.dtype)
    scale = max((largest(value) for value in wanted.values()), default=0.0)
    pairs = [(loss, own_loss, largest(loss)), *((value, found[name], scale) for name, value in wanted.items())]
    return all(torch.allclose(one, other, rtol=near, atol=near * size, equal_nan=True) for one, other, size in pairs)
