"""Writes tiny data sets in exactly the form in which the true ones are published."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

KINDS = {np.dtype("u1"): 0x08, np.dtype("i4"): 0x0C, np.dtype("f4"): 0x0D}
MNIST_PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx_bytes(values: np.ndarray) -> bytes:
    """0, 0, kind, dimensions, then sizes and values, the most significant byte first."""
    head = bytes([0, 0, KINDS[values.dtype], values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return head + values.astype(values.dtype.newbyteorder(">")).tobytes()


def write_idx(path: Path, values: np.ndarray) -> Path:
    """Packed if the name ends so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = idx_bytes(values)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def mnist_arrays(num_train: int = 12, num_test: int = 4) -> list[np.ndarray]:
    """Images and labels to train, images and labels to test."""
    images, tests = noise(num_train, 28, 28), noise(num_test, 28, 28, seed=1)
    return [images, np.arange(num_train, dtype=np.uint8) % 10, tests, np.arange(num_test, dtype=np.uint8) % 10]


def write_mnist(folder: Path, arrays: list[np.ndarray] | None = None, *, ending: str = ".gz") -> None:
    for part, values in zip(MNIST_PARTS, arrays or mnist_arrays(), strict=True):
        write_idx(folder / f"{part}{ending}", values)


def write_npz(path: Path, **arrays: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return path


def write_picture(path: Path, pixels: np.ndarray, mode: str | None = None) -> Path:
    """By Pillow, in the form that the name's ending says."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(pixels)
    (picture.convert(mode) if mode else picture).save(path)
    return path
