"""Newton's method on the head: no learning rate, and never a larger loss.

The Hessian of cross-entropy in the head is only ever multiplied with a direction, so a head of any size
fits. With P the class probabilities, F the features with a last column of ones, and V a direction,
H V = (P * (F V^T) - P * rowsum(P * (F V^T)))^T F / n. Conjugate gradients solve (H + damping) V = gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from plures.core.problem import Outcome, Problem
from plures.core.rates import check_count, check_rate
from plures.core.types import Params
from plures.local.heads import HeadProblem, on_features

__all__ = ["NewtonHead", "newton_head"]

SUFFICIENT = 1e-4
"""Share of the decrease promised by the slope that a step must keep (Armijo's rule)."""
HALVINGS = 20


@dataclass(frozen=True, kw_only=True)
class NewtonHead:
    """At most as many Newton steps as the phase's budget has updates, each shortened until the loss does not grow."""

    damping: float = 1e-6
    inner_steps: int = 50
    """Most steps of conjugate gradients in one Newton step."""
    tolerance: float = 1e-7
    """Norm of the gradient at which the head is as good as it gets."""

    def __post_init__(self) -> None:
        check_rate("damping of Newton's method", self.damping)
        check_rate("tolerance of Newton's method", self.tolerance)
        check_count("inner steps of Newton's method", self.inner_steps, least=1)

    def check(self, problem: Problem) -> None:
        """Before round 1: is the personal part the network's linear head?"""
        on_features(problem)

    def __call__(self, problem: Problem) -> Outcome:
        head = on_features(problem)
        features = with_ones(head)
        weights, losses = joined(head), list[Tensor]()
        for _ in problem.batches():
            value, grad, probabilities = expansion(features, weights, head.visit.data.targets)
            losses.append(value)
            if grad.norm() <= self.tolerance:
                break
            direction = self._direction(features, probabilities, grad)
            weights = shortened(features, weights, head.visit.data.targets, value, grad, direction)
        mean = torch.stack(losses).mean() if losses else torch.zeros(())
        return Outcome(problem.params | parted(head, weights), {}, mean, 1.0 if losses else 0.0)

    def _direction(self, features: Tensor, probabilities: Tensor, grad: Tensor) -> Tensor:
        def product(direction: Tensor) -> Tensor:
            pushed = probabilities * (features @ direction.T)
            pushed = pushed - probabilities * pushed.sum(dim=1, keepdim=True)
            return pushed.T @ features / len(features) + self.damping * direction

        return conjugate_gradients(product, grad, self.inner_steps)


def newton_head(damping: float = 1e-6, inner_steps: int = 50) -> NewtonHead:
    """A solver for phases that move the linear head and nothing else."""
    return NewtonHead(damping=damping, inner_steps=inner_steps)


def with_ones(head: HeadProblem) -> Tensor:
    features = head.visit.data.inputs
    return features if head.bias is None else torch.cat([features, features.new_ones(len(features), 1)], dim=1)


def joined(head: HeadProblem) -> Tensor:
    weight = head.params[head.weight]
    return weight if head.bias is None else torch.cat([weight, head.params[head.bias][:, None]], dim=1)


def parted(head: HeadProblem, weights: Tensor) -> Params:
    if head.bias is None:
        return {head.weight: weights}
    return {head.weight: weights[:, :-1].contiguous(), head.bias: weights[:, -1].contiguous()}


def expansion(features: Tensor, weights: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, gradient and class probabilities at a point."""
    logits = features @ weights.T
    probabilities = torch.softmax(logits, dim=1)
    error = probabilities - F.one_hot(targets, weights.shape[0]).to(logits.dtype)
    return F.cross_entropy(logits, targets), error.T @ features / len(features), probabilities


def conjugate_gradients(product: Callable[[Tensor], Tensor], right: Tensor, steps: int) -> Tensor:
    """Solve product(x) = right, product symmetric and positive definite."""
    solution = torch.zeros_like(right)
    residual, direction = right, right
    size = (residual * residual).sum()
    goal = 1e-10 * size
    for _ in range(steps):
        if size <= goal or size == 0:
            break
        image = product(direction)
        length = size / (direction * image).sum()
        solution, residual = solution + length * direction, residual - length * image
        size, old = (residual * residual).sum(), size
        direction = residual + size / old * direction
    return solution


def shortened(
    features: Tensor, weights: Tensor, targets: Tensor, value: Tensor, grad: Tensor, direction: Tensor
) -> Tensor:
    """The longest halved step that decreases the loss enough; no step if none does."""
    slope = (grad * direction).sum()
    length = 1.0
    for _ in range(HALVINGS):
        moved = weights - length * direction
        if F.cross_entropy(features @ moved.T, targets) <= value - SUFFICIENT * length * slope:
            return moved
        length /= 2
    return weights
