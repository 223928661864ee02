"""A convolutional network for sensors: several channels over time."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from plures.models.classifier import Classifier, flat_classifier, pooled
from plures.models.shapes import SERIES, axes_of, check_sizes, places_left, valid_halvings


def cnn_1d(
    *,
    shape: Sequence[int] = (6, 128),
    classes: int = 6,
    filters: Sequence[int] = (32, 64),
    kernel: int = 5,
    fc: Sequence[int] = (128,),
) -> Classifier:
    """Convolutions over time, each halved by max-pooling, then linear layers; the default is for phone motion."""
    channels, time = axes_of("cnn_1d", shape, SERIES)
    check_sizes("cnn_1d", classes=classes, filters=filters, kernel=kernel, fc=fc)
    layers: list[nn.Module] = []
    for width in filters:
        layers += pooled(nn.Conv1d(channels, width, kernel), nn.MaxPool1d(2))
        channels = width
    places = places_left("cnn_1d", [time], lambda side: valid_halvings(side, kernel, len(filters)))
    return flat_classifier(layers, channels * places, fc, classes)
