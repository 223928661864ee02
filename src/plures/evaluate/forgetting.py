"""What a client's model still knows of classes that the client itself never trained on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

FORGETTING = "forgetting"
"""By this word a file asks for three numbers."""
SEEN_AND_UNSEEN = ("seen_accuracy", "unseen_accuracy", "unseen_share")


def forgetting(output: Tensor, targets: Tensor, trained_on: Tensor) -> dict[str, float]:
    """Accuracy apart on classes that are among the client's training labels and on those that are not."""
    right = output.argmax(dim=1) == targets
    seen = torch.isin(targets, trained_on.to(targets.device))
    shares = (share(right, seen), share(right, ~seen), share(~seen, torch.ones_like(seen)))
    return dict(zip(SEEN_AND_UNSEEN, shares, strict=True))


def share(right: Tensor, among: Tensor) -> float:
    """Of nothing there is none."""
    count = int(among.sum())
    return int((right & among).sum()) / count if count else math.nan
