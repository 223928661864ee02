"""EMNIST: letters and digits of NIST as IDX files, or as MATLAB files that also tell the writers."""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, Literal

import numpy as np

from plures.core.types import Batch
from plures.data.datasets import DataSet, Scaled
from plures.data.sources.finding import find_form
from plures.data.sources.idx import read_idx
from plures.data.sources.images import LIKE_THE_OTHERS, image_batch, moved_axes, number_owners
from plures.data.sources.reading import Array, check_choice, optional_package, reading, wrong
from plures.data.sources.registry import source

Form = Literal["letters", "byclass", "balanced", "digits"]

CLASSES = {
    "letters": tuple(ascii_uppercase),  # capital and small letters are one class
    "byclass": tuple(digits + ascii_uppercase + ascii_lowercase),
    "balanced": tuple(digits + ascii_uppercase + "abdefghnqrt"),
    "digits": tuple(digits),
}
FIRST_LABEL = {"letters": 1}
PARTS = ("train", "test")
KINDS = ("images-idx3", "labels-idx1")
SIDE = 28


@source(
    "emnist",
    about="145,600 letters (or 814,255 characters of 62 classes), 1x28x28; clients are writers in the .mat files",
    files=("emnist/emnist-*.mat, or emnist/emnist-*-ubyte* (the four files of a form as published, packed or not)",),
)
def emnist(form: Form = "letters") -> DataSet:
    """Images upright, pixels from 0 to 1. Both kinds of files hold them transposed; that is undone here."""
    check_choice("form", form, CLASSES)
    idx = tuple(f"emnist/**/emnist-{form}-{part}-{kind}-ubyte*" for part in PARTS for kind in KINDS)
    found, paths = find_form("emnist", {"mat": (f"emnist/**/emnist-{form}.mat",), "idx": idx})
    return _from_mat(form, paths[0]) if found == "mat" else _from_idx(form, paths)


def _from_idx(form: Form, paths: list[Path]) -> DataSet:
    batches = [
        _batch(form, paths[at + 1], read_idx(paths[at], ndim=3), read_idx(paths[at + 1], ndim=1)) for at in (0, 2)
    ]
    return _dataset(form, *batches)


def _from_mat(form: Form, path: Path) -> DataSet:
    io = optional_package("scipy.io", "A .mat file")
    with reading(path, io.matlab.MatReadError, NameError):  # its reader stumbles over its own names, too
        content = io.loadmat(path, variable_names=["dataset"], simplify_cells=True)
    fields = {part: _fields(path, content, part) for part in PARTS}
    batches = [_batch(form, path, part["images"], part["labels"]) for part in fields.values()]
    names, owners = number_owners(*(part["writers"] for part in fields.values()))
    for batch, writers in zip(batches, owners, strict=True):
        if batch.num_examples != len(writers):
            raise wrong(path, f"has {batch.num_examples} images but {len(writers)} writers", LIKE_THE_OTHERS)
    return _dataset(form, *batches, owner_names=names, owners=owners[0], test_owners=owners[1])


def _fields(path: Path, content: dict[str, Any], part: str) -> dict[str, Array]:
    """Images, labels and writers of the training or the test examples."""
    try:
        found = content["dataset"][part]
        arrays = {name: np.asarray(found[name]) for name in ("images", "labels", "writers")}
    except (KeyError, TypeError, IndexError):
        raise wrong(path, f"has no dataset.{part} with images, labels and writers") from None
    if arrays["images"].ndim != 2 or arrays["images"].shape[1] != SIDE * SIDE:
        raise wrong(path, f"has images of shape {arrays['images'].shape}, not (examples, {SIDE * SIDE})")
    images = np.require(arrays["images"], requirements=["C", "W"])
    return arrays | {"images": images.reshape(-1, SIDE, SIDE)}


def _batch(form: Form, path: Path, images: Array, labels: Array) -> Batch:
    return image_batch(path, moved_axes(images, (2, 1)), labels, len(CLASSES[form]), FIRST_LABEL.get(form, 0))


def _dataset(form: Form, train: Batch, test: Batch, **owned: Any) -> DataSet:
    classes = CLASSES[form]
    return DataSet(name="emnist", examples=train, test=test, class_names=classes, prepare=Scaled(), **owned)
