"""FEMNIST: characters by writer, as LEAF's json files, as the per-client HDF5 files of TFF, or as one npz file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from plures.core.types import Batch
from plures.data.datasets import DataSet, Scaled
from plures.data.sources.finding import find_form
from plures.data.sources.images import class_numbers_of, number_owners
from plures.data.sources.reading import Array, optional_package, reading, wrong
from plures.data.sources.registry import source
from plures.data.sources.writers import CHARACTERS, by_writer

SIDE = 28


class Share(NamedTuple):
    """What one file has of one writer."""

    writer: str
    images: Array
    labels: Array


@source(
    "femnist",
    about="about 800,000 characters, 1x28x28, 62 classes; clients are some 3,500 writers",
    files=(
        "femnist/train/*.json and femnist/test/*.json of LEAF, or femnist/fed_emnist_train.h5 and"
        " femnist/fed_emnist_test.h5 of TFF, or femnist/femnist.npz with x, y, writer and writers",
    ),
    hub="flwrlabs/femnist",
)
def femnist() -> DataSet:
    """Pixels from 0 to 1 as published: dark ink on bright paper, unlike EMNIST.

    Where train and test files have other writers, as LEAF can divide them, these own test examples only.
    """
    forms = {
        "leaf": ("femnist/**/train/*.json", "femnist/**/test/*.json"),
        "hdf5": ("femnist/**/fed_emnist_train.h5", "femnist/**/fed_emnist_test.h5"),
        "npz": ("femnist/femnist.npz",),
    }
    form, paths = find_form("femnist", forms)
    if form == "npz":
        return by_writer("femnist", paths[0])
    if form == "hdf5":
        return _dataset(*(_gathered(path, _hdf5_shares(path)) for path in paths))
    return _dataset(*(_gathered(path.parent, _leaf_shares(path.parent)) for path in paths))


def _leaf_shares(folder: Path) -> Iterator[Share]:
    for path in sorted(folder.glob("*.json")):
        with reading(path):
            content = json.loads(path.read_bytes())
        if not isinstance(content, dict) or not {"users", "user_data"} <= content.keys():
            raise wrong(path, "is no file of LEAF: it has no 'users' and 'user_data'")
        sizes = content.get("num_samples", [None] * len(content["users"]))
        if len(sizes) != len(content["users"]):
            raise wrong(path, f"has {len(content['users'])} users but {len(sizes)} num_samples")
        for writer, size in zip(content["users"], sizes, strict=True):
            yield _leaf_share(path, writer, size, content["user_data"].pop(writer, None))


def _leaf_share(path: Path, writer: str, size: int | None, data: Any) -> Share:
    if not isinstance(data, dict) or not {"x", "y"} <= data.keys():
        raise wrong(path, f"has no x and y of writer {writer}")
    with reading(path):
        share = _share(path, writer, np.array(data["x"], np.float32), np.array(data["y"]))
    if size is not None and len(share.labels) != size:
        raise wrong(path, f"has {len(share.labels)} examples of writer {writer}, but num_samples says {size}")
    return share


def _hdf5_shares(path: Path) -> Iterator[Share]:
    h5py = optional_package("h5py", "An HDF5 file")
    with reading(path):
        file = h5py.File(path, "r")
    with file:
        with reading(path):
            clients = dict(file.get("examples", {}))
        if not clients:
            raise wrong(path, "is no per-client file of TFF: it has no clients in a group 'examples'")
        for writer, client in clients.items():
            with reading(path):
                pixels, labels = np.asarray(client["pixels"]), np.asarray(client["label"])
            yield _share(path, writer, pixels, labels)


def _share(path: Path, writer: str, pixels: Array, labels: Array) -> Share:
    """Real numbers from 0 to 1 to bytes: they were made by division by 255, so nothing is lost."""
    labels = labels.reshape(-1)
    if pixels.size != len(labels) * SIDE * SIDE or not len(labels):
        shape = f"{len(labels)} labels and pixels of shape {pixels.shape}"
        raise wrong(path, f"has, of writer {writer}, {shape}, not {SIDE * SIDE} pixels for each label")
    if not (pixels.min() >= 0 and pixels.max() <= 1):
        raise wrong(path, f"has, of writer {writer}, pixels outside 0 to 1")
    images = np.rint(pixels.reshape(-1, 1, SIDE, SIDE) * np.float32(255)).astype(np.uint8)
    return Share(writer, images, class_numbers_of(path, labels, len(CHARACTERS)))


def _gathered(path: Path, shares: Iterable[Share]) -> tuple[Batch, Array]:
    """All examples of one split, and the writer of each."""
    all_shares = list(shares)
    if not all_shares:
        raise wrong(path, "has no examples")
    images, labels = (np.concatenate([share[part] for share in all_shares]) for part in (1, 2))
    writers = np.repeat([share.writer for share in all_shares], [len(share.labels) for share in all_shares])
    return Batch(torch.from_numpy(images), torch.from_numpy(labels)), writers


def _dataset(train: tuple[Batch, Array], test: tuple[Batch, Array]) -> DataSet:
    names, (owners, test_owners) = number_owners(train[1], test[1])
    return DataSet(
        name="femnist",
        examples=train[0],
        test=test[0],
        owners=owners,
        test_owners=test_owners,
        owner_names=names,
        class_names=CHARACTERS,
        prepare=Scaled(),
    )
