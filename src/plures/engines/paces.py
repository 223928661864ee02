"""How parameters move under SGD where gradients are products of matrices: straight into the weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plures.core.method import own_parameters
from plures.core.problem import Problem, eager_gradient
from plures.core.products import add_product
from plures.core.types import Params
from plures.local.optimizers import Sgd


@dataclass(frozen=True, kw_only=True)
class Pace:
    """SGD with a rate, weight decay and momentum; gradients are multiplied by `scale` first."""

    lr: float
    decay: float
    momentum: float
    scale: float


class Mover:
    """Moves parameters in place; the velocities of those with momentum are kept here."""

    def __init__(self, params: Params, paces: dict[str, Pace]) -> None:
        self.params, self.paces = params, paces
        self.past = {name: torch.zeros_like(params[name]) for name, pace in paces.items() if pace.momentum}

    def by_product(self, name: str, left: Tensor, right: Tensor, share: float) -> None:
        """The gradient is share times left @ right, and is never written down."""
        pace, value = self.paces[name], self.params[name]
        if not pace.momentum:
            keep = 1.0 - pace.lr * pace.decay
            add_product(value, left, right, beta=keep, alpha=-pace.lr * pace.scale * share)
            return
        past = add_product(self.past[name], left, right, beta=pace.momentum, alpha=pace.scale * share)
        self._follow(value, past, pace)

    def by_sum(self, name: str, rows: Tensor, share: float) -> None:
        """The gradient is share times the sum of the rows."""
        pace, value = self.paces[name], self.params[name]
        if not pace.momentum:
            value = value.mul_(1.0 - pace.lr * pace.decay) if pace.decay else value
            value.add_(rows.sum(dim=0), alpha=-pace.lr * pace.scale * share)
            return
        past = self.past[name].mul_(pace.momentum).add_(rows.sum(dim=0), alpha=pace.scale * share)
        self._follow(value, past, pace)

    @staticmethod
    def _follow(value: Tensor, past: Tensor, pace: Pace) -> None:
        if pace.decay:
            past.add_(value, alpha=pace.decay)
        value.add_(past, alpha=-pace.lr)


def is_plain(problem: Problem) -> bool:
    """Whether a phase is nothing but SGD on the network's own loss, so that gradients may be taken by hand."""
    phase = problem.phase
    asks_no_more = phase.view is own_parameters and phase.penalty is None and phase.clip_norm is None
    rules = [rule for rule, _ in problem.optimizers()]
    return (
        asks_no_more
        and problem.gradient is eager_gradient
        and all(type(rule) is Sgd and not rule.nesterov for rule in rules)
    )


def paces_of(problem: Problem) -> dict[str, Pace]:
    """The pace of each name that moves."""
    scale, found = problem.phase.scale(problem.visit.facts), dict[str, Pace]()
    for rule, names in problem.optimizers():
        assert isinstance(rule, Sgd)
        lr = rule.lr(problem.visit.round)
        pace = Pace(lr=lr, decay=rule.weight_decay, momentum=rule.momentum, scale=scale)
        found |= dict.fromkeys(names, pace)
    return found
