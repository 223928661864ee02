"""Per-FedAvg's step: the gradient of the loss after one step of the client's own.

With F(w) = f(w - rate * grad f(w)) the gradient is (I - rate * Hessian) grad f(w~). The first-order form leaves the
Hessian out; the Hessian-free form takes its product from two gradients at a small distance d.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from plures.core.problem import Outcome, Problem
from plures.core.types import Batch, Params, Schedule

__all__ = ["MetaDescent"]


@dataclass(frozen=True, kw_only=True)
class MetaDescent:
    """Takes 2 or 3 batches of the budget for each step; the phase's optimiser takes the outer step."""

    inner_lr: Schedule
    hessian_free: bool
    difference: float
    """d: how far from the point the two gradients are taken."""

    def __call__(self, problem: Problem) -> Outcome:
        (rule, names), params, losses, num_seen = problem.optimizers()[0], problem.params, list[Tensor](), 0
        state = rule.init({name: params[name] for name in names})
        for batches in in_groups(problem.batches(), 3 if self.hessian_free else 2):
            grads, loss = self._meta_gradient(problem, params, batches, names)
            mine = {name: params[name] for name in names}
            mine, state = rule.update(problem.clipped(grads), state, mine, rule.lr(problem.visit.round))
            params = params | mine
            losses.append(loss)
            num_seen += sum(batch.num_examples for batch in batches) + (
                batches[-1].num_examples if self.hessian_free else 0
            )
        mean = torch.stack(losses).mean() if losses else torch.zeros(())
        return Outcome(params, {}, mean, num_seen / problem.visit.data.num_examples)

    def _meta_gradient(
        self, problem: Problem, params: Params, batches: list[Batch], names: list[str]
    ) -> tuple[Params, Tensor]:
        rate = self.inner_lr(problem.visit.round)
        first, _ = problem.gradients(params, batches[0], names)
        outer, loss = problem.gradients(params | shifted(params, first, -rate), batches[1], names)
        if not self.hessian_free:
            return outer, loss
        ahead, _ = problem.gradients(params | shifted(params, outer, self.difference), batches[2], names)
        behind, _ = problem.gradients(params | shifted(params, outer, -self.difference), batches[2], names)
        curved = {n: (ahead[n] - behind[n]) / (2 * self.difference) for n in names}
        return {n: outer[n] - rate * curved[n] for n in names}, loss


def shifted(params: Params, direction: Params, length: float) -> Params:
    return {name: torch.add(params[name], value, alpha=length) for name, value in direction.items()}


def in_groups(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    while len(group := list(islice(batches, size))) == size:
        yield group
