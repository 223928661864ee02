"""Networks after LeNet: convolutions 5 x 5 without padding, each halved by max-pooling, then linear layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from plures.models.classifier import Classifier, flat_classifier, pooled
from plures.models.shapes import PICTURE, axes_of, check_sizes, places_left, valid_halvings, with_channels

KERNEL = 5


def leaf_cnn(
    *,
    shape: Sequence[int] = (1, 28, 28),
    channels: int | None = None,
    classes: int = 62,
    filters: Sequence[int] = (32, 64),
    fc: Sequence[int] = (2048,),
) -> Classifier:
    """The network of the pFedGate paper for EMNIST and FEMNIST, and with (3, 32, 32) and 100 classes for CIFAR-100."""
    return lenet("leaf_cnn", with_channels(shape, channels), classes, filters, fc)


def lenet32(
    *,
    shape: Sequence[int] = (3, 32, 32),
    channels: int | None = None,
    classes: int = 10,
    filters: Sequence[int] = (32, 64),
    fc: Sequence[int] = (120, 84),
) -> Classifier:
    """The network of the pFedGate paper for CIFAR-10."""
    return lenet("lenet32", with_channels(shape, channels), classes, filters, fc)


def lenet5(
    *,
    shape: Sequence[int] = (1, 28, 28),
    channels: int | None = None,
    classes: int = 26,
    filters: Sequence[int] = (20, 50),
    fc: Sequence[int] = (500,),
) -> Classifier:
    """LeNet-5 as in Caffe, the network of the FedSpa paper for the letters of EMNIST."""
    return lenet("lenet5", with_channels(shape, channels), classes, filters, fc)


def lenet(name: str, shape: Sequence[int], classes: int, filters: Sequence[int], fc: Sequence[int]) -> Classifier:
    channels, *sides = axes_of(name, shape, PICTURE)
    check_sizes(name, classes=classes, filters=filters, fc=fc)
    layers: list[nn.Module] = []
    for width in filters:
        layers += pooled(nn.Conv2d(channels, width, KERNEL), nn.MaxPool2d(2))
        channels = width
    places = places_left(name, sides, lambda side: valid_halvings(side, KERNEL, len(filters)))
    return flat_classifier(layers, channels * places, fc, classes)
