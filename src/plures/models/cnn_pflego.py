"""The convolutional networks of the PFLEGO papers: CNN-P for CIFAR-10, CNN-O for Omniglot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from plures.models.classifier import Classifier, flat_classifier, pooled
from plures.models.init import initialise
from plures.models.shapes import PICTURE, axes_of, check_sizes, places_left, with_channels

Init = Literal["pflego", "torch"]


class SamePool(nn.Module):
    """Max-pooling 3 x 3 with stride 2 that gives ceil(side / 2), padded as TensorFlow and JAX pad.

    An even side gets one more place at its end and none at its beginning; torch's own padding is the same on both
    sides, which would move every window by one place.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        height, width = inputs.shape[-2:]
        padded = F.pad(inputs, (width % 2, 1, height % 2, 1), value=float("-inf"))
        return F.max_pool2d(padded, 3, stride=2)


def cnn_p(
    *,
    shape: Sequence[int] = (3, 32, 32),
    channels: int | None = None,
    classes: int = 10,
    filters: Sequence[int] = (64, 64),
    fc: Sequence[int] = (384, 192),
    init: Init = "pflego",
) -> Classifier:
    """Convolutions 5 x 5, each halved, and two linear layers; the layer column of the table in the paper."""
    width_in, *sides = axes_of("cnn_p", with_channels(shape, channels), PICTURE)
    check_sizes("cnn_p", classes=classes, filters=filters, fc=fc)
    layers: list[nn.Module] = []
    for width in filters:
        layers += pooled(nn.Conv2d(width_in, width, 5, padding=2), SamePool())
        width_in = width
    places = places_left("cnn_p", sides, lambda side: -(-side // 2 ** len(filters)))
    model = flat_classifier(layers, width_in * places, fc, classes)
    initialise(model, init)
    return model


def cnn_o(
    *,
    shape: Sequence[int] = (1, 28, 28),
    channels: int | None = None,
    classes: int = 55,
    filters: int = 64,
    fc: Sequence[int] = (),
    init: Init = "pflego",
) -> Classifier:
    """Four convolutions 3 x 3, each halved; 28 x 28 becomes one place, so there are as many features as filters."""
    width_in, *sides = axes_of("cnn_o", with_channels(shape, channels), PICTURE)
    check_sizes("cnn_o", classes=classes, filters=filters, fc=fc)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += pooled(nn.Conv2d(width_in, filters, 3, padding=1), nn.MaxPool2d(2))
        width_in = filters
    places = places_left("cnn_o", sides, lambda side: side // 16)
    model = flat_classifier(layers, width_in * places, fc, classes)
    initialise(model, init)
    return model
