"""How one client's images look: turned, bolder, of more or less contrast, noisy."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, radians, sin

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plures.core.errors import InvalidData
from plures.core.seeds import generator
from plures.data.dealing import keyed_generator

PURPOSE = "style"


@dataclass(frozen=True, kw_only=True)
class Style:
    """One client's way of writing."""

    rotation: float
    """In degrees, against the clock."""
    contrast: float
    """Distances from middle grey are multiplied by it."""
    noise: float
    """The standard deviation of normal noise, where pixels go from 0 to 1."""
    dilation: int
    """Pixels by which bright strokes grow to each side."""


@dataclass(frozen=True, kw_only=True)
class Styles:
    """How far clients' styles differ; each client's is drawn once, uniformly, by seed and client."""

    rotation: float
    contrast: float
    noise: float
    dilation: int

    def of(self, client: int, seed: int) -> Style:
        rng = keyed_generator(seed, PURPOSE, client)
        return Style(
            rotation=rng.uniform(-self.rotation, self.rotation),
            contrast=rng.uniform(1 - self.contrast, 1 + self.contrast),
            noise=rng.uniform(0, self.noise),
            dilation=int(rng.integers(0, self.dilation, endpoint=True)),
        )


def refuse_no_images(inputs: Tensor) -> None:
    """An error unless inputs are images of bytes, or of numbers from 0 to 1."""
    if inputs.dim() != 4:
        shape = tuple(inputs.shape[1:])
        raise InvalidData(f"feature_shift is for images (channels, height, width), but inputs have shape {shape}.")
    if inputs.dtype == torch.uint8:
        return
    if not inputs.is_floating_point() or float(inputs.min()) < 0 or float(inputs.max()) > 1:
        raise InvalidData("feature_shift is for pixels that are bytes or go from 0 to 1: scale the inputs before.")


def styled(inputs: Tensor, style: Style, *, client: int, split: str, seed: int) -> Tensor:
    """Images of one client in its style; of the same type, and the same at every call."""
    if not len(inputs):
        return inputs
    images = inputs.to(torch.float32) / 255 if inputs.dtype == torch.uint8 else inputs
    images = _turned(images, style.rotation) if style.rotation else images
    if style.dilation:
        images = F.max_pool2d(images, 2 * style.dilation + 1, stride=1, padding=style.dilation)
    images = 0.5 + style.contrast * (images - 0.5)
    if style.noise:
        draws = generator(seed, PURPOSE, "noise", split, client)
        images = images + style.noise * torch.randn(images.shape, generator=draws, dtype=images.dtype)
    images = images.clamp(0, 1)
    return (images * 255).round().to(torch.uint8) if inputs.dtype == torch.uint8 else images


def _turned(images: Tensor, degrees: float) -> Tensor:
    """All by one angle, in one pass; what comes in from outside is dark."""
    angle, (height, width) = radians(degrees), images.shape[2:]
    # The grid has units of half the height and half the width.
    turn = np.array([[cos(angle), -sin(angle) * height / width, 0], [sin(angle) * width / height, cos(angle), 0]])
    theta = torch.from_numpy(turn).to(images.dtype).unsqueeze(0)
    grid = F.affine_grid(theta, [1, images.shape[1], height, width], align_corners=False)
    return F.grid_sample(images, grid.expand(len(images), -1, -1, -1), padding_mode="zeros", align_corners=False)
