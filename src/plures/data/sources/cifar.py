"""CIFAR-10 and CIFAR-100: one npz file, or the binary version of the original (the pickled one is never read)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch

from plures.core.types import Batch
from plures.data.datasets import DataSet, Scaled
from plures.data.sources.cifar_names import COARSE, FINE, OBJECTS
from plures.data.sources.finding import find_form
from plures.data.sources.images import class_numbers_of, image_batch
from plures.data.sources.reading import check_choice, read_npz, reading, wrong
from plures.data.sources.registry import source

NORMALISED = Scaled(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
"""By the means and deviations that the pFedGate and FedEM experiments use for both sets."""

PIXELS = 3 * 32 * 32


@source(
    "cifar-10",
    about="50,000 photographs and 10,000 to test, 3x32x32, ten classes; no natural clients",
    files=(
        "cifar-10/cifar-10.npz with x_train, y_train, x_test and y_test, or cifar-10/*/data_batch_*.bin as published",
    ),
    hub="uoft-cs/cifar10",
)
def cifar_10(normalised: bool = True) -> DataSet:
    """Normalised by the means and deviations of its training images, or with pixels from 0 to 1."""
    binary = (*(f"cifar-10/**/data_batch_{number}.bin" for number in range(1, 6)), "cifar-10/**/test_batch.bin")
    form, paths = find_form("cifar-10", {"npz": ("cifar-10/cifar-10.npz",), "binary": binary})
    if form == "npz":
        train, test = _npz_batch(paths[0], "train", OBJECTS), _npz_batch(paths[0], "test", OBJECTS)
    else:
        train, test = _binary_batch(paths[:5], OBJECTS), _binary_batch(paths[5:], OBJECTS)
    prepare = NORMALISED if normalised else Scaled()
    return DataSet(name="cifar-10", examples=train, test=test, class_names=OBJECTS, prepare=prepare)


@source(
    "cifar-100",
    about="50,000 photographs and 10,000 to test, 3x32x32, 100 classes (or 20 coarse ones); no natural clients",
    files=("cifar-100/cifar-100.npz with x_train, y_train, x_test and y_test, or cifar-100/*/train.bin as published",),
    hub="uoft-cs/cifar100",
)
def cifar_100(labels: Literal["fine", "coarse"] = "fine") -> DataSet:
    """Normalised as CIFAR-10; an npz file with coarse labels has them as coarse_train and coarse_test."""
    check_choice("labels", labels, ("fine", "coarse"))
    names = FINE if labels == "fine" else COARSE
    binary = ("cifar-100/**/train.bin", "cifar-100/**/test.bin")
    form, paths = find_form("cifar-100", {"npz": ("cifar-100/cifar-100.npz",), "binary": binary})
    if form == "npz":
        array = "y" if labels == "fine" else "coarse"
        train, test = (_npz_batch(paths[0], part, names, array) for part in ("train", "test"))
    else:
        byte = 1 if labels == "fine" else 0
        train, test = (_binary_batch([path], names, label_bytes=2, byte=byte) for path in paths)
    return DataSet(name="cifar-100", examples=train, test=test, class_names=names, prepare=NORMALISED)


def _npz_batch(path: Path, part: str, names: tuple[str, ...], labels: str = "y") -> Batch:
    arrays = read_npz(path, f"x_{part}", f"{labels}_{part}")
    return image_batch(path, arrays[f"x_{part}"], arrays[f"{labels}_{part}"], len(names))


def _binary_batch(paths: list[Path], names: tuple[str, ...], *, label_bytes: int = 1, byte: int = 0) -> Batch:
    """Records of a few label bytes, of which one is taken, and the pixels: red, green, blue."""
    record = label_bytes + PIXELS
    counts = [_num_records(path, record) for path in paths]
    images, labels = np.empty((sum(counts), 3, 32, 32), np.uint8), np.empty(sum(counts), np.int64)
    end = 0
    for path, count in zip(paths, counts, strict=True):
        start, end = end, end + count
        with reading(path):
            records = np.fromfile(path, np.uint8).reshape(count, record)
        images[start:end] = records[:, label_bytes:].reshape(count, 3, 32, 32)
        labels[start:end] = class_numbers_of(path, records[:, byte], len(names))
    return Batch(torch.from_numpy(images), torch.from_numpy(labels))


def _num_records(path: Path, record: int) -> int:
    with reading(path):
        size = path.stat().st_size
    if size == 0 or size % record:
        raise wrong(path, f"has {size} bytes, which is no multiple of {record}: it is not whole or of another set")
    return size // record
