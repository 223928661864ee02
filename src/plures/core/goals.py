"""What a federation is for: its loss, its metrics, and the metric that rounds and clients are judged by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from plures.core.task import Loss

GoalName = Literal["classification", "regression", "next_token"]
Metric = Callable[[Tensor, Tensor], float]
"""(output of the network, targets) -> a number for these examples."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """How good a network is: by which numbers, and over how many items."""

    name: GoalName
    loss: Loss
    metrics: Mapping[str, Metric]
    """Beside the loss, which always is one."""
    judged_by: str
    """The metric by which rounds are chosen and clients are helped or hurt."""
    larger_is_better: bool
    count: Callable[[Tensor], int]
    """How many items of the targets are scored: examples, or tokens."""
    each: Callable[[Tensor, Tensor], Tensor]
    """(output of the network, targets) -> how good it is for each scored item; larger is better."""
    items: Callable[[Tensor], Mapping[str, int]] | None = None
    """Over how many items of these targets each metric, and the loss, is a mean; None: not all of them are means.

    With it a client is scored in parts: outputs for each word of a vocabulary are large.
    """


def num_examples(targets: Tensor) -> int:
    return int(targets.shape[0])


def accuracy(output: Tensor, targets: Tensor) -> float:
    """The share of examples whose largest output is that of their class."""
    return int((output.argmax(dim=1) == targets).sum()) / max(1, targets.shape[0])


def is_right(output: Tensor, targets: Tensor) -> Tensor:
    return (output.argmax(dim=1) == targets).double()


CLASSIFICATION = Goal(
    name="classification",
    loss=F.cross_entropy,
    metrics={"accuracy": accuracy},
    judged_by="accuracy",
    larger_is_better=True,
    count=num_examples,
    each=is_right,
)


def squared_error(output: Tensor, targets: Tensor) -> Tensor:
    """The mean squared error; a last dimension of one output is no dimension."""
    return F.mse_loss(as_targets(output, targets), targets)


def as_targets(output: Tensor, targets: Tensor) -> Tensor:
    return output.squeeze(-1) if output.dim() == targets.dim() + 1 and output.shape[-1] == 1 else output


def without_broadcasting(loss: Loss) -> Loss:
    """A user's loss on outputs of the targets' shape: (n, 1) against (n,) would be compared all with all."""
    return lambda output, targets: loss(as_targets(output, targets), targets)


def mean_absolute_error(output: Tensor, targets: Tensor) -> float:
    return float((as_targets(output, targets) - targets).abs().mean())


def root_mean_squared_error(output: Tensor, targets: Tensor) -> float:
    return math.sqrt(float(squared_error(output, targets)))


def minus_squared_errors(output: Tensor, targets: Tensor) -> Tensor:
    """Of each example, the mean over what it has of targets."""
    squared = (as_targets(output, targets) - targets).double() ** 2
    return -squared.reshape(len(squared), -1).mean(dim=1)


REGRESSION = Goal(
    name="regression",
    loss=squared_error,
    metrics={"mae": mean_absolute_error, "rmse": root_mean_squared_error},
    judged_by="rmse",
    larger_is_better=False,
    count=num_examples,
    each=minus_squared_errors,
)


def next_token(*, padding: int = 0, special: tuple[int, ...] = (0, 1, 2, 3)) -> Goal:
    """Outputs of shape (examples, vocabulary, time): padding has no loss, special tokens no say in the accuracy."""
    scored = partial(is_scored, special=special)
    return Goal(
        name="next_token",
        loss=partial(token_cross_entropy, ignore_index=padding),
        metrics={"accuracy": partial(token_accuracy, special=special)},
        judged_by="accuracy",
        larger_is_better=True,
        count=lambda targets: int(scored(targets).sum()),
        each=lambda output, targets: is_right(output, targets)[scored(targets)],
        items=lambda targets: {"accuracy": int(scored(targets).sum()), "loss": int((targets != padding).sum())},
    )


def token_cross_entropy(output: Tensor, targets: Tensor, *, ignore_index: int) -> Tensor:
    """Cross-entropy; outputs of many places one by one, as they lie in memory where a linear layer made them."""
    if output.dim() == 3:
        output, targets = output.transpose(1, 2).flatten(0, 1), targets.flatten()
    return F.cross_entropy(output, targets, ignore_index=ignore_index)


def is_scored(targets: Tensor, special: tuple[int, ...]) -> Tensor:
    return ~torch.isin(targets, torch.tensor(special, dtype=targets.dtype, device=targets.device))


def token_accuracy(output: Tensor, targets: Tensor, special: tuple[int, ...]) -> float:
    """The share of tokens, special ones apart, that have the largest output."""
    scored = is_scored(targets, special)
    right = (output.argmax(dim=1) == targets) & scored
    return int(right.sum()) / max(1, int(scored.sum()))


def goal_named(name: GoalName) -> Goal:
    goals: dict[str, Goal] = {"classification": CLASSIFICATION, "regression": REGRESSION, "next_token": next_token()}
    return goals[name]
