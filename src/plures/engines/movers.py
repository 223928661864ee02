"""Optimisers that change parameters in place; each step gives what the optimiser's own pure function would."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from plures.core.method import Optimizer
from plures.core.types import Params
from plures.local.optimizers import Sgd
from plures.local.touched import Spans, TouchedOnly, touched

FEW = 32
"""Entries that are looked at first: where anything is touched, nearly everything is."""
FUSED = (torch.float32, torch.float64)
"""Types of numbers that torch takes a fused step on."""

Span = tuple[int, int]
Tensors = list[Tensor] | tuple[Tensor, ...]


def can_move(rule: Optimizer, values: list[Tensor]) -> bool:
    """Whether a rule is known here; choosing pieces would keep an accelerator waiting."""
    if type(rule) is TouchedOnly:
        return type(rule.rule) is Sgd and all(value.device.type == "cpu" for value in values)
    return type(rule) is Sgd


def mover_of(rule: Optimizer, names: list[str], params: Params, round: int) -> SgdMover:
    """Of a rule that can be moved by."""
    if isinstance(rule, TouchedOnly):
        assert isinstance(rule.rule, Sgd)
        return TouchedMover(rule.rule, names, params, round, rule.spans)
    assert isinstance(rule, Sgd)
    return SgdMover(rule, names, params, round)


class SgdMover:
    """SGD on some parameters."""

    def __init__(self, rule: Sgd, names: list[str], params: Params, round: int) -> None:
        self.rule, self.names, self.lr = rule, names, rule.lr(round)
        self.values = [params[name] for name in names]
        self.past = [torch.zeros_like(value) for value in self.values] if rule.momentum else []

    def move(self, grads: Tensors, scale: float) -> None:
        if self.names:
            self.step(self.values, self.past, torch._foreach_mul(grads, scale) if scale != 1.0 else grads)

    def step(self, values: list[Tensor], past: list[Tensor], grads: Tensors) -> None:
        rule = self.rule
        if (rule.weight_decay or rule.momentum) and lie_alike(values, past, grads):
            sgd(
                values,
                list(grads),
                [*past] if past else [None] * len(values),
                fused=True,
                weight_decay=rule.weight_decay,
                momentum=rule.momentum,
                lr=self.lr,
                dampening=0.0,
                nesterov=rule.nesterov,
                maximize=False,
            )
            return
        if rule.weight_decay:
            grads = torch._foreach_add(grads, values, alpha=rule.weight_decay)
        if rule.momentum:
            torch._foreach_mul_(past, rule.momentum)
            torch._foreach_add_(past, grads)
            grads = torch._foreach_add(grads, past, alpha=rule.momentum) if rule.nesterov else past
        torch._foreach_add_(values, grads, alpha=-self.lr)


class TouchedMover(SgdMover):
    """SGD on the pieces whose gradient is not all zero; the others keep their values and their momentum."""

    def __init__(self, rule: Sgd, names: list[str], params: Params, round: int, spans: Spans) -> None:
        super().__init__(rule, names, params, round)
        self.spans = [spans.get(name) for name in names]

    def step(self, values: list[Tensor], past: list[Tensor], grads: Tensors) -> None:
        chosen: list[tuple[Tensor, ...]] = []
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        for grad, spans, *own in zip(grads, self.spans, *([values, past] if past else [values]), strict=True):
            if spans is None:
                chosen.append((grad, *own))
            elif all(one.is_contiguous() for one in (grad, *own)):
                flat = [one.view(-1) for one in (grad, *own)]
                chosen += [tuple(one[slice(*span)] for one in flat) for span in spans if is_touched(flat[0], span)]
            else:  # by channels; pieces are cut in the usual order
                mask = touched(grad, spans)
                if not mask.all():
                    kept += [(mask, one, one.clone()) for one in own]
                chosen.append((grad, *own))
        if chosen:
            steps, *own_lists = (list(one) for one in zip(*chosen, strict=True))
            super().step(own_lists[0], own_lists[1] if past else [], steps)
        for mask, moved, before in kept:
            moved.copy_(torch.where(mask, moved, before))


def lie_alike(*lists: Tensors) -> bool:
    """Whether torch may take a step in one pass over memory, which goes by the order of entries there."""
    return all(
        can_fuse(first) and all(steps_of(one) == steps_of(first) for one in others)
        for first, *others in zip(*(values for values in lists if values), strict=True)
    )


def can_fuse(value: Tensor) -> bool:
    dense = value.is_contiguous() or (value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last))
    return dense and value.device.type == "cpu" and value.dtype in FUSED


def steps_of(value: Tensor) -> list[int]:
    """How far apart entries lie; where there is one only, its stride means nothing."""
    return [stride for stride, size in zip(value.stride(), value.shape, strict=True) if size > 1]


def is_touched(flat: Tensor, span: Span) -> bool:
    start, stop = span
    return bool(flat[start : min(stop, start + FEW)].any()) or bool(flat[start:stop].any())
