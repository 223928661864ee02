"""What a client's model still knows of classes that the client itself never trained on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

FORGETTING = "forgetting"
"""By this word a file asks for the three numbers below."""


def forgetting(output: Tensor, targets: Tensor, trained_on: Tensor) -> dict[str, float]:
    """Accuracy apart on classes that are among the client's training labels and on those that are not."""
    right = output.argmax(dim=1) == targets
    seen = torch.isin(targets, trained_on.to(targets.device))
    return {
        "seen_accuracy": share(right, seen),
        "unseen_accuracy": share(right, ~seen),
        "unseen_share": share(~seen, torch.ones_like(seen)),
    }


def share(right: Tensor, among: Tensor) -> float:
    """Of nothing there is none."""
    count = int(among.sum())
    return int((right & among).sum()) / count if count else math.nan
