"""pFedMe's inner loop: descent on a client's Moreau envelope, one batch at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plures.core.problem import Outcome, Problem
from plures.core.rates import check_count, check_rate, check_schedule
from plures.core.types import SHARED, Params, Schedule
from plures.local.views import twin_of

__all__ = ["MoreauDescent"]


@dataclass(frozen=True, kw_only=True)
class MoreauDescent:
    """theta near w by some steps on the batch, then w towards theta at the rate of the phase's optimiser."""

    lam: float
    inner_steps: int
    inner_lr: Schedule
    detached_prox: bool
    """Leave the pull out of theta's gradient."""
    keep_theta: bool
    """Leave the last theta in the twin."""

    def __post_init__(self) -> None:
        check_rate("lam of pfedme", self.lam)
        check_count("inner_steps of pfedme", self.inner_steps, least=1)
        check_schedule("inner_lr of pfedme", self.inner_lr)

    def __call__(self, problem: Problem) -> Outcome:
        params, names, losses = problem.params, problem.binding.names(SHARED), list[Tensor]()
        round, num_seen = problem.visit.round, 0
        outer, inner = problem.optimizers()[0][0].lr(round), self.inner_lr(round)
        theta: Params = {}  # without a batch the twin stays as it is
        for batch in problem.batches():
            centre = theta = {name: params[name] for name in names}
            for _ in range(self.inner_steps):
                grads, loss = problem.gradients(params | theta, batch, names)
                pull = 0.0 if self.detached_prox else self.lam
                theta = {n: v - inner * (grads[n] + pull * (v - centre[n])) for n, v in theta.items()}
                losses.append(loss)
                num_seen += batch.num_examples
            params = params | {n: w - outer * self.lam * (w - theta[n]) for n, w in centre.items()}
        if self.keep_theta:
            params = params | {twin_of(name): value for name, value in theta.items()}
        mean = torch.stack(losses).mean() if losses else torch.zeros(())
        return Outcome(params, {}, mean, num_seen / problem.visit.data.num_examples)
