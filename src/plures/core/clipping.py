"""Gradient-norm clipping, jointly over named tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from plures.core.types import Params


def joint_norm(params: Params) -> Tensor:
    """The Euclidean norm of all tensors taken as one vector."""
    norms = torch.stack([value.norm() for value in params.values()])
    result: Tensor = norms.norm()
    return result


def clip_by_norm(grads: Params, max_norm: float) -> Params:
    """Scale all tensors by one factor so that their joint norm is at most `max_norm` (the rule of torch)."""
    if not grads:
        return grads
    factor = torch.clamp(max_norm / (joint_norm(grads) + 1e-6), max=1.0)
    return {name: value * factor for name, value in grads.items()}
