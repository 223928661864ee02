"""The drawings of Omniglot from npz files or from folders of PNG files: in order, ink bright, at one size."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import interpolate

from plures.data.sources.pictures import read_picture
from plures.data.sources.reading import Array, read_npz, reading, wrong

PARTS = ("background", "evaluation")
CHUNK = 500
"""Drawings made smaller at once."""


@dataclass(frozen=True, kw_only=True)
class Drawings:
    """Every character of every alphabet, drawn by the same number of people."""

    images: Array
    """Bytes of shape (characters, drawers, size, size), ink bright."""
    alphabets: tuple[str, ...]
    """Of each character."""
    characters: tuple[str, ...]
    """Of each character its name within its alphabet."""


def from_npz(names: Path, files: Sequence[Path], size: int) -> Drawings:
    """`images` of shape (characters, drawers, rows, columns), True for paper, in two files; their names in json."""
    found: list[tuple[str, str, Array]] = []
    for part, path in zip(PARTS, files, strict=True):
        paper = read_npz(path, "images")["images"]
        if paper.ndim != 4 or paper.dtype != bool:
            raise wrong(path, f"has images of type {paper.dtype} and shape {paper.shape}, not bool with 4 dimensions")
        pairs = _names(names, part, len(paper))
        small = shrunk((~row for row in paper.reshape(-1, *paper.shape[2:])), size).reshape(
            *paper.shape[:2], size, size
        )
        found += [(*pairs[place], small[place]) for place in sorted(range(len(pairs)), key=pairs.__getitem__)]
    return _joined(names.parent, found)


def _names(path: Path, part: str, count: int) -> list[tuple[str, str]]:
    with reading(path):
        table = json.loads(path.read_bytes())[part]
        pairs = list(zip(table["alphabet"], table["character"], strict=True))
    if len(pairs) != count:
        raise wrong(path, f"names {len(pairs)} characters of the part '{part}', which has {count}")
    return pairs


def from_folders(folders: Sequence[Path], size: int) -> Drawings:
    """<folder>/<Alphabet>/<characterNN>/<id>_<drawer>.png, black on white."""
    found: list[tuple[str, str, Array]] = []
    for folder in folders:
        for place in sorted(path for path in folder.glob("*/*") if path.is_dir()):
            files = sorted(place.glob("*.png"))
            if not files:
                raise wrong(place, "has no drawings (*.png)")
            found.append((place.parent.name, place.name, shrunk(map(_ink, files), size)))
    if not found:
        raise wrong(folders[0], "has no folders <Alphabet>/<character>", "Unpack the published zip files there")
    return _joined(folders[0].parent, found)


def _ink(path: Path) -> Array:
    pixels: Array = 255 - read_picture(path, grey=True)[0]
    return pixels


def shrunk(ink: Iterator[Array], size: int) -> Array:
    """Bytes, 255 for ink, resized bilinearly over the whole area that a pixel covers; ink is True, or bright."""
    done, chunk = [], []
    for image in ink:
        chunk.append(image)
        if len(chunk) == CHUNK:
            done.append(_shrunk(np.stack(chunk), size))
            chunk = []
    return np.concatenate([*done, _shrunk(np.stack(chunk), size)] if chunk else done)


def _shrunk(ink: Array, size: int) -> Array:
    values = torch.from_numpy(ink)[:, None].to(torch.float32).mul_(255 if ink.dtype == bool else 1)
    if values.shape[2:] != (size, size):
        values = interpolate(values, (size, size), mode="bilinear", antialias=True, align_corners=False)
    pixels: Array = values[:, 0].round_().clamp_(0, 255).to(torch.uint8).numpy()
    return pixels


def _joined(folder: Path, found: list[tuple[str, str, Array]]) -> Drawings:
    counts = {len(images) for _, _, images in found}
    if len(counts) > 1:
        most = max(counts)
        name = next(f"{alphabet}/{character}" for alphabet, character, images in found if len(images) < most)
        raise wrong(folder, f"has fewer drawings of {name} than {most}, which others have")
    alphabets, characters, images = zip(*found, strict=True)
    return Drawings(images=np.stack(images), alphabets=alphabets, characters=characters)
