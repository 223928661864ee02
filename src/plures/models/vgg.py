"""VGG11 with group norm, the network of the FedSpa paper for CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from plures.core.errors import InvalidModel
from plures.models.classifier import Classifier, flat_classifier
from plures.models.init import kaiming_fan_out
from plures.models.shapes import PICTURE, axes_of, check_sizes, places_left, with_channels

STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))
"""Widths of the convolutions between two halvings."""


def vgg11_gn(
    *, shape: Sequence[int] = (3, 32, 32), channels: int | None = None, classes: int = 10, groups: int = 32
) -> Classifier:
    """Eight convolutions 3 x 3 with bias, group norm and ReLU, five halvings, and a single linear layer."""
    width_in, *sides = axes_of("vgg11_gn", with_channels(shape, channels), PICTURE)
    check_sizes("vgg11_gn", classes=classes, groups=groups)
    if STAGES[0][0] % groups:
        raise InvalidModel(f"vgg11_gn needs a number of groups that divides {STAGES[0][0]}, not {groups}.")
    layers: list[nn.Module] = []
    for stage in STAGES:
        for width in stage:
            layers += [nn.Conv2d(width_in, width, 3, padding=1), nn.GroupNorm(groups, width), nn.ReLU()]
            width_in = width
        layers.append(nn.MaxPool2d(2))
    places = places_left("vgg11_gn", sides, lambda side: side // 2 ** len(STAGES))
    model = flat_classifier(layers, width_in * places, (), classes)
    kaiming_fan_out(model)
    nn.init.normal_(model.head.weight, std=0.01)
    nn.init.zeros_(model.head.bias)
    return model
