"""Uploads of which a client sends a random part only, drawn anew in every round (Konečný et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from plures.core.seeds import generator
from plures.core.types import Params
from plures.core.visit import Trained, Upload, Visit
from plures.local.masks import cut

__all__ = ["SubsampledDelta"]


@dataclass(frozen=True, kw_only=True)
class SubsampledDelta:
    """Received minus trained, where a random mask is one."""

    keep: float
    exact: bool
    """Whether the mask has exactly that share of ones, over all tensors together; else each entry draws for itself."""
    rescale: bool
    """Whether what is sent is divided by the share that is sent, so that nothing is lost on average."""

    def __call__(self, visit: Visit, trained: Trained) -> Upload:
        moved = {name: visit.received[name] - value for name, value in trained.shared.items()}
        draws = generator(visit.seed, "subsample", visit.round, visit.client)
        held, share = self.masks(moved, draws)
        if self.rescale:
            moved = {name: value / share for name, value in moved.items()}
        return Upload({name: cut(value, held[name]) for name, value in moved.items()}, held)

    def masks(self, like: Params, draws: torch.Generator) -> tuple[Params, float]:
        """A mask for each tensor, and the share of ones that is to be expected."""
        sizes = [value.numel() for value in like.values()]
        flat, share = self.mask(sum(sizes), draws)
        parts = torch.split(flat, sizes)
        masks = {
            name: mask.reshape(value.shape).to(value.device)
            for (name, value), mask in zip(like.items(), parts, strict=True)
        }
        return masks, share

    def mask(self, size: int, draws: torch.Generator) -> tuple[torch.Tensor, float]:
        if not self.exact:
            return torch.rand(size, generator=draws) < self.keep, self.keep
        count = max(1, round(self.keep * size))
        flat = torch.zeros(size, dtype=torch.bool)
        flat[torch.randperm(size, generator=draws)[:count]] = True
        return flat, count / max(1, size)
