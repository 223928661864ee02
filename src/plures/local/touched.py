"""Optimisers that leave alone what a step did not touch: momentum and weight decay would move dropped blocks too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plures.core.method import Optimizer, OptimizerState
from plures.core.types import Params, Schedule

__all__ = ["TouchedOnly", "touched"]

Spans = Mapping[str, Sequence[tuple[int, int]]]
"""Of each parameter, where its pieces start and stop."""


@dataclass(frozen=True, kw_only=True)
class TouchedOnly:
    """An optimiser for blocks: a piece whose whole gradient is zero keeps its values and its momentum."""

    rule: Optimizer
    spans: Spans

    @property
    def lr(self) -> Schedule:
        return self.rule.lr

    def init(self, params: Params) -> OptimizerState:
        return self.rule.init(params)

    def update(self, grads: Params, state: OptimizerState, params: Params, lr: float) -> tuple[Params, OptimizerState]:
        masks = {name: touched(grads[name], self.spans[name]) for name in params if name in self.spans}
        moved, after = self.rule.update(grads, state, params, lr)
        kept = {name: torch.where(masks[name], moved[name], params[name]) for name in masks}
        states = {
            group: {n: torch.where(masks[n], v, state[group][n]) if n in masks else v for n, v in tensors.items()}
            for group, tensors in after.items()
        }
        return moved | kept, states


def touched(change: Tensor, spans: Sequence[tuple[int, int]]) -> Tensor:
    """A mask of the pieces in which anything is not zero."""
    flat = change.reshape(-1) != 0
    return torch.cat([flat[start:stop].any().expand(stop - start) for start, stop in spans]).reshape(change.shape)
