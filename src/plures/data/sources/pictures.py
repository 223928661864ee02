"""Picture files to bytes of shape (C, H, W); Pillow is asked for only when there is one to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from plures.data.sources.reading import Array, optional_package, reading, wrong

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def read_picture(path: Path, *, grey: bool = False, resize: int | None = None, crop: int | None = None) -> Array:
    """One picture; its shorter side becomes `resize` pixels, of whose centre `crop` x `crop` are kept."""
    pillow = optional_package("PIL.Image", "A picture file")
    with reading(path, pillow.DecompressionBombError), pillow.open(path) as file:
        picture = file.convert("L" if grey else "RGB")
        if resize is not None and min(picture.size) != resize:
            sizes = [max(resize, round(side * resize / min(picture.size))) for side in picture.size]
            picture = picture.resize(tuple(sizes), pillow.Resampling.BILINEAR)
        if crop is not None:
            left, top = ((side - crop) // 2 for side in picture.size)
            picture = picture.crop((left, top, left + crop, top + crop))
        pixels = np.asarray(picture)
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def read_pictures(
    paths: Sequence[Path], *, grey: bool = False, resize: int | None = None, crop: int | None = None
) -> Array:
    """Pictures of one size, one after another into one array: bytes of shape (N, C, H, W)."""
    first = read_picture(paths[0], grey=grey, resize=resize, crop=crop)
    images = np.empty((len(paths), *first.shape), np.uint8)
    for place, path in enumerate(paths):
        picture = read_picture(path, grey=grey, resize=resize, crop=crop) if place else first
        if picture.shape != first.shape:
            sizes = f"{_size(picture)} pixels, but {paths[0]} has {_size(first)}"
            raise wrong(path, f"has {sizes}", "Give a size, to which all are brought")
        images[place] = picture
    return images


def _size(picture: Array) -> str:
    return f"{picture.shape[2]}x{picture.shape[1]}"
