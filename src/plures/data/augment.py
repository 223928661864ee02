"""Changes of images for training: crops, flips and turns, drawn for each example, done for the whole batch at once."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.task import Augment


def crop(padding: int) -> Augment:
    """Zeros around the image, then a window of its old size at a random place."""
    if not isinstance(padding, int) or isinstance(padding, bool) or padding < 1:
        raise InvalidConfig(f"padding is {padding!r}: it must be a whole number of at least 1.")
    return partial(_crop, padding=padding)


def flip() -> Augment:
    """Left and right exchanged, for every second example on average."""
    return _flip


def turn() -> Augment:
    """A turn by 0, 90, 180 or 270 degrees, each as likely."""
    return _turn


def compose(*changes: Augment) -> Augment:
    """One change after another."""
    if not changes:
        raise InvalidConfig("compose needs at least one change, such as flip().")
    return partial(_compose, changes=changes)


def _crop(inputs: Tensor, generator: torch.Generator, *, padding: int) -> Tensor:
    count, _, height, width = _shape(inputs)
    rows, columns = _draw(2 * padding + 1, (2, count), inputs, generator)
    # A view of shape (N, C, places, places, H, W): every window of every image, none of them copied.
    windows = pad(inputs, (padding, padding, padding, padding)).unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(count, device=inputs.device), :, rows, columns]


def _flip(inputs: Tensor, generator: torch.Generator) -> Tensor:
    chosen = _draw(2, (_shape(inputs)[0], 1, 1, 1), inputs, generator)
    return torch.where(chosen == 1, inputs.flip(3), inputs)


def _turn(inputs: Tensor, generator: torch.Generator) -> Tensor:
    count, _, height, width = _shape(inputs)
    if height != width:
        raise InvalidData(f"Images of {width}x{height} pixels cannot be turned by 90 degrees: make them square.")
    turns = _draw(4, (count, 1, 1, 1), inputs, generator)
    turned = inputs
    for quarter in (1, 2, 3):
        turned = torch.where(turns == quarter, inputs.rot90(quarter, (2, 3)), turned)
    return turned.contiguous()


def _compose(inputs: Tensor, generator: torch.Generator, *, changes: tuple[Augment, ...]) -> Tensor:
    for change in changes:
        inputs = change(inputs, generator)
    return inputs


def _shape(inputs: Tensor) -> tuple[int, int, int, int]:
    if inputs.dim() != 4:
        raise InvalidData(f"Only images (N, C, H, W) can be augmented; these inputs have shape {tuple(inputs.shape)}.")
    count, channels, height, width = inputs.shape
    return count, channels, height, width


def _draw(below: int, shape: tuple[int, ...], inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Whole numbers from 0, drawn where the generator is, for use where the inputs are."""
    return torch.randint(below, shape, generator=generator, device=generator.device).to(inputs.device)
