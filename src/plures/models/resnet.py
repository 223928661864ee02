"""Residual networks with group norm: ResNet-18 of the FedAlt and FedSpa papers, and a small one of eight layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from plures.core.errors import InvalidModel
from plures.models.init import initialise
from plures.models.shapes import PICTURE, axes_of, check_sizes, check_word, with_channels
from plures.parts import num_groups

Groups = Literal["by_width"] | int
Stem = Literal["small", "large"]
Init = Literal["torch", "kaiming"]


class ConvNorm(nn.Module):
    """A convolution without bias, and its norm."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.norm = nn.GroupNorm(groups, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.norm(self.conv(inputs))
        return result


class ResidualBlock(nn.Module):
    """Two convolutions 3 x 3 around which the input passes, through a 1 x 1 convolution where sizes change."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(groups, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(groups, outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else ConvNorm(inputs, outputs, 1, stride, groups)

    def forward(self, inputs: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.conv1(inputs)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(inputs))


class ResNet(nn.Module):
    """A stem, residual blocks whose width grows as the sides halve, the mean over all places, and the head."""

    def __init__(
        self, channels: int, widths: Sequence[int], groups: Sequence[int], per_width: int, stem: Stem, classes: int
    ) -> None:
        super().__init__()
        large = stem == "large"
        self.stem = ConvNorm(channels, widths[0], 7 if large else 3, 2 if large else 1, groups[0])
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        blocks, inputs = list[nn.Module](), widths[0]
        for place, (width, own) in enumerate(zip(widths, groups, strict=True)):
            for repeat in range(per_width):
                blocks.append(ResidualBlock(inputs, width, 2 if place > 0 and repeat == 0 else 1, own))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.blocks(self.pool(torch.relu(self.stem(inputs))))
        result: Tensor = self.head(features.mean(dim=(2, 3)))
        return result


def resnet18_gn(
    *,
    shape: Sequence[int] = (3, 32, 32),
    channels: int | None = None,
    classes: int = 100,
    widths: Sequence[int] = (64, 128, 256, 512),
    groups: Groups = 32,
    stem: Stem = "small",
    init: Init = "torch",
) -> ResNet:
    """ResNet-18: that of the FedSpa paper, and with groups = "by_width" that of the FedAlt paper.

    The small stem is a 3 x 3 convolution; the large one, for 224 x 224, is 7 x 7 with stride 2 and max-pooling.
    """
    return resnet("resnet18_gn", with_channels(shape, channels), classes, widths, groups, 2, stem, init)


def resnet8_gn(
    *,
    shape: Sequence[int] = (1, 28, 28),
    channels: int | None = None,
    classes: int = 10,
    widths: Sequence[int] = (16, 32, 64),
    groups: Groups = "by_width",
    stem: Stem = "small",
    init: Init = "torch",
) -> ResNet:
    """One block per width: ResNet-18 made small enough for a laptop, with every kind of layer it has."""
    return resnet("resnet8_gn", with_channels(shape, channels), classes, widths, groups, 1, stem, init)


def resnet(
    name: str,
    shape: Sequence[int],
    classes: int,
    widths: Sequence[int],
    groups: Groups,
    per_width: int,
    stem: Stem,
    init: Init,
) -> ResNet:
    channels, _, _ = axes_of(name, shape, PICTURE)
    check_sizes(name, classes=classes, widths=widths)
    check_word(name, "stem", stem, get_args(Stem))
    if not widths:
        raise InvalidModel(f"{name} needs at least one width.")
    model = ResNet(channels, widths, [groups_of(name, width, groups) for width in widths], per_width, stem, classes)
    initialise(model, init)
    return model


def groups_of(name: str, width: int, groups: Groups) -> int:
    """How many groups a norm of so many channels has."""
    if isinstance(groups, int):
        if groups < 1 or width % groups:
            raise InvalidModel(f"{name} needs a number of groups that divides every width: {groups} does not {width}.")
        return groups
    if groups != "by_width":
        raise InvalidModel(f'{name} takes groups = "by_width" or a number, not {groups!r}.')
    return num_groups(width)
