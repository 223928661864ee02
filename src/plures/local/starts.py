"""What a client's own part is before its first visit."""

from __future__ import annotations

import torch

from plures.core.types import Params
from plures.core.visit import Beginning
from plures.local.views import twin_of

__all__ = ["start_from_received", "uniform_start"]


def uniform_start(beginning: Beginning) -> Params:
    """Every value drawn from U[0, 1) for each client, as the PFLEGO papers start their heads; counters stay."""
    draws = beginning.own_draws()
    return {n: drawn(value, draws) if value.is_floating_point() else value for n, value in beginning.state.items()}


def drawn(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(like.shape, generator=generator, dtype=like.dtype).to(like.device)


def start_from_received(beginning: Beginning) -> Params:
    """A twin starts as a copy of the first model that its client receives."""
    state = beginning.state
    return state | {twin_of(name): value for name, value in beginning.received.items() if twin_of(name) in state}
