"""Whether values are those of one client, or stand for many under torch.func."""

from __future__ import annotations

import torch


def in_transform() -> bool:
    """Whether vmap, grad or the like is at work: then only plain operations will do, and no number can be looked at."""
    return bool(torch._C._are_functorch_transforms_active())
