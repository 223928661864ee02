"""From arrays of images and labels to examples: bytes of shape (N, C, H, W), class numbers, owners by number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from plures.core.types import Batch
from plures.data.dealing import Indices
from plures.data.sources.reading import Array, wrong

CHUNK = 4096
"""Images whose axes are moved at once."""

LIKE_THE_OTHERS = "Fetch images and labels again, from one place"


def image_batch(path: Path, images: Array, labels: Array, num_classes: int, first_label: int = 0) -> Batch:
    """Examples of a file: images (N, H, W), (N, H, W, C) or (N, C, H, W) of bytes, one label each.

    The array is taken over, not copied: its axes are moved in its own memory.
    """
    labels = labels.reshape(-1)
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise wrong(path, f"has images of type {images.dtype} and shape {images.shape}, not bytes (N, H, W) or with C")
    if len(images) != len(labels) or not len(images):
        raise wrong(path, f"has {len(images)} images but {len(labels)} labels", LIKE_THE_OTHERS)
    numbers = class_numbers_of(path, labels, num_classes, first_label)
    return Batch(torch.from_numpy(channels_first(images)), torch.from_numpy(numbers))


def class_numbers_of(path: Path, labels: Array, num_classes: int, first_label: int = 0) -> Indices:
    """Labels as class numbers from 0; one out of range is an error."""
    if labels.dtype.kind not in "iu":
        raise wrong(path, f"has labels of type {labels.dtype}, not whole numbers", LIKE_THE_OTHERS)
    numbers = labels.astype(np.int64) - first_label
    if numbers.min() < 0 or numbers.max() >= num_classes:
        found = f"{labels.min()} to {labels.max()}"
        last = first_label + num_classes - 1
        raise wrong(path, f"has labels from {found}, but the classes are {first_label} to {last}", LIKE_THE_OTHERS)
    return numbers


def channels_first(images: Array) -> Array:
    """(N, H, W) and (N, H, W, C) to (N, C, H, W); what has one or three channels in front stays."""
    images = np.require(images, requirements=["C", "W"])
    if images.ndim == 3:
        return images[:, None]
    last_is_colour = images.shape[3] in (1, 3) and images.shape[1] not in (1, 3)
    return moved_axes(images, (3, 1, 2)) if last_is_colour else images


def moved_axes(images: Array, order: tuple[int, ...]) -> Array:
    """The axes after the first in another order, image by image within its own memory: nothing is held twice."""
    moved = images.reshape(len(images), *(images.shape[axis] for axis in order))
    for start in range(0, len(images), CHUNK):
        chunk = slice(start, start + CHUNK)
        moved[chunk] = images[chunk].transpose(0, *order).copy()
    return moved


def number_owners(*parts: Sequence[object] | Array) -> tuple[tuple[str, ...], list[Indices]]:
    """Names of owners, sorted, and for each part (train, test) the owners of its examples as places among them."""
    arrays = [np.asarray(part).reshape(-1) for part in parts]
    names, places = np.unique(np.concatenate(arrays), return_inverse=True)
    ends = np.cumsum([len(array) for array in arrays])[:-1]
    return tuple(map(str, names)), [part.astype(np.int64) for part in np.split(places, ends)]


def number_in_order(names: Sequence[str]) -> tuple[tuple[str, ...], Indices]:
    """Distinct names in the order in which they first come, and the place of each among them."""
    distinct = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return tuple(distinct), np.array([distinct[name] for name in names], dtype=np.int64)
