"""What a client's own part is before its first visit."""

from __future__ import annotations

import torch

from plures.core.types import Params

__all__ = ["uniform_start"]


def uniform_start(state: Params, generator: torch.Generator) -> Params:
    """Every value drawn from U[0, 1) for each client, as the PFLEGO papers start their heads; counters stay."""
    return {name: drawn(value, generator) if value.is_floating_point() else value for name, value in state.items()}


def drawn(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(like.shape, generator=generator, dtype=like.dtype).to(like.device)
