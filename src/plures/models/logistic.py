"""Logistic regression, and with one class linear regression: nothing but a head."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import nn

from plures.models.classifier import Classifier
from plures.models.shapes import check_sizes


def logistic(*, shape: Sequence[int] = (784,), classes: int = 10) -> Classifier:
    """A linear function of the flattened input, (batch, classes); with classes=1 a number per example, (batch, 1)."""
    check_sizes("logistic", shape=shape, classes=classes)
    return Classifier(nn.Flatten(), prod(shape), classes)
