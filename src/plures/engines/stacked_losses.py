"""The mean loss of each client of a stack, over examples that are really its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plures.core.goals import as_targets, squared_error, token_cross_entropy
from plures.core.task import Loss

StackedLoss = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""(outputs, targets, which examples are no padding) -> a loss per client; clients and examples come first."""

IGNORED = -100
"""The label that cross-entropy passes by, unless it is told another."""


def stacked_loss(loss: Loss) -> StackedLoss | None:
    """The loss of many clients at once; None of one that is not known to be a mean over examples."""
    if loss is squared_error:
        return squared_errors
    options = cross_entropy_options(loss)
    if options is None or not options.keys() <= {"ignore_index", "label_smoothing"}:
        return None
    return partial(cross_entropies, **options)


def cross_entropy_options(loss: Loss) -> dict[str, Any] | None:
    """What cross-entropy is told beside outputs and targets; None of another loss."""
    if loss is F.cross_entropy:
        return {}
    if isinstance(loss, partial) and loss.func in (F.cross_entropy, token_cross_entropy) and not loss.args:
        return dict(loss.keywords)
    return None


def cross_entropies(
    outputs: Tensor, targets: Tensor, real: Tensor | None, *, ignore_index: int = IGNORED, label_smoothing: float = 0.0
) -> Tensor:
    """The mean over what has a label that counts: examples, or tokens."""
    each = F.cross_entropy(
        outputs.flatten(0, 1),
        targets.flatten(0, 1),
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction="none",
    )
    each = each.reshape(*targets.shape[:2], -1)
    counted = torch.ones_like(each, dtype=torch.bool)
    if not targets.is_floating_point():
        counted = (targets != ignore_index).reshape(each.shape)
    return mean_of(each, counted if real is None else counted & real.unsqueeze(2))


def squared_errors(outputs: Tensor, targets: Tensor, real: Tensor | None) -> Tensor:
    flat = targets.flatten(0, 1)
    each = F.mse_loss(as_targets(outputs.flatten(0, 1), flat), flat, reduction="none").reshape(*targets.shape[:2], -1)
    return each.mean(dim=(1, 2)) if real is None else mean_of(each, real.unsqueeze(2).expand_as(each))


def mean_of(each: Tensor, counted: Tensor) -> Tensor:
    return (each * counted).sum(dim=(1, 2)) / counted.sum(dim=(1, 2))
