"""Google Landmarks v2 by photographer: pictures in folders, and the published table of who took which."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.types import Batch
from plures.data.augment import flip
from plures.data.datasets import DataSet, Scaled
from plures.data.dealing import keyed_generator
from plures.data.sources.finding import find_form
from plures.data.sources.pictures import read_pictures
from plures.data.sources.reading import check_count, reading, wrong
from plures.data.sources.registry import source

COLUMNS = ("user_id", "image_id", "class")
PLACES = ("", "images", "train")
"""Folders beside the table that may hold <a>/<b>/<c>/<abc...>.jpg."""

IMAGENET = Scaled(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""Networks that start from ImageNet's weights expect this."""


class Photo(NamedTuple):
    """One row of the table."""

    user: str
    image: str
    label: int


@source(
    "gldv2",
    about="164,172 photographs of 2,028 landmarks, 3x224x224; clients are photographers, 823 with 50 or more",
    files=(
        "gldv2/*train.csv with user_id, image_id and class (federated_train.csv of landmarks-user-160k), and the"
        " pictures as a/b/c/abc....jpg beside it or in its folder images or train",
    ),
)
def gldv2(
    min_examples: int = 50, size: int = 224, resize: int = 256, sample_clients: int | None = None, seed: int = 0
) -> DataSet:
    """Clients with `min_examples` photographs or more; half of each client's, drawn by `seed`, are for testing.

    The shorter side becomes `resize` pixels and the centre `size` x `size` is kept. Only photographs of the chosen
    clients are read, but these stay in memory, 150 kB each: `sample_clients` chooses some at random. A test.csv
    with user_id gives the clients' own test photographs instead of half; the published one has none and is not
    used. In training images are flipped at random; the papers also draw where they are cropped.
    """
    for option, value in {"min_examples": min_examples, "size": size, "resize": resize}.items():
        check_count(option, value, least=2 if option == "min_examples" else 1)
    if resize < size:
        raise InvalidConfig(f"resize is {resize}, less than size, which is {size}: make it at least as large.")
    _, paths = find_form("gldv2", {"federated": ("gldv2/federated_train.csv",), "plain": ("gldv2/train.csv",)})
    table = _read_table(paths[0])
    clients = _chosen_clients(paths[0], table, min_examples, sample_clients, seed)
    tests = _own_tests(paths[0].with_name("test.csv"))
    parts = _halves(table, clients, seed) if tests is None else (_of(table, clients), _of(tests, clients))
    if not parts[1]:
        raise wrong(paths[0].with_name("test.csv"), "has no photographs of the chosen clients", "Remove it")
    pictures = _find_pictures(paths[0].parent, [photo.image for photos in parts for photo in photos])
    train, test = (_batch(pictures, photos, size, resize) for photos in parts)
    numbers = {user: number for number, user in enumerate(clients)}
    owners, test_owners = (np.array([numbers[photo.user] for photo in photos], np.int64) for photos in parts)
    return DataSet(
        name="gldv2",
        examples=train,
        test=test,
        owners=owners,
        test_owners=test_owners,
        owner_names=tuple(clients),
        class_names=tuple(str(label) for label in range(1 + max(photo.label for photo in table))),
        prepare=IMAGENET,
        augment=flip(),
    )


def _read_table(path: Path) -> list[Photo]:
    with reading(path):
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    absent = [column for column in COLUMNS if not rows or column not in rows[0]]
    if absent:
        raise wrong(path, f"has no column '{absent[0]}' or no rows", "Use federated_train.csv as published")
    with reading(path, remedy="Each row needs user_id, image_id and a class number"):
        return [Photo(row["user_id"], row["image_id"], int(row["class"])) for row in rows]


def _own_tests(path: Path) -> list[Photo] | None:
    """Test photographs that belong to clients, where there are some."""
    if not path.exists():
        return None
    with reading(path):
        columns = path.read_text(encoding="utf-8").partition("\n")[0].strip().split(",")
    return _read_table(path) if "user_id" in columns else None


def _chosen_clients(path: Path, table: list[Photo], least: int, sample: int | None, seed: int) -> list[str]:
    users, counts = np.unique([photo.user for photo in table], return_counts=True)
    large = users[counts >= least]
    if not len(large):
        raise wrong(path, f"has no client with {least} photographs", "Lower min_examples")
    if sample is not None:
        check_count("sample_clients", sample)
        if sample > len(large):
            raise InvalidConfig(f"sample_clients is {sample}, but only {len(large)} clients have {least} photographs.")
        large = np.sort(keyed_generator(seed, "gldv2", "clients").choice(large, sample, replace=False))
    return [str(user) for user in large]


def _of(table: list[Photo], clients: list[str]) -> list[Photo]:
    chosen = set(clients)
    return [photo for photo in table if photo.user in chosen]


def _halves(table: list[Photo], clients: list[str], seed: int) -> tuple[list[Photo], list[Photo]]:
    """Of each client a random half to train; of an odd number the larger."""
    owned: dict[str, list[Photo]] = {user: [] for user in clients}
    for photo in _of(table, clients):
        owned[photo.user].append(photo)
    train, test = [], []
    for user, photos in owned.items():
        order = keyed_generator(seed, "gldv2", "halves", user).permutation(len(photos))
        shuffled, half = [photos[place] for place in order], (len(photos) + 1) // 2
        train += shuffled[:half]
        test += shuffled[half:]
    return train, test


def _batch(pictures: dict[str, Path], photos: list[Photo], size: int, resize: int) -> Batch:
    images = read_pictures([pictures[photo.image] for photo in photos], resize=resize, crop=size)
    return Batch(torch.from_numpy(images), torch.tensor([photo.label for photo in photos]))


def _find_pictures(folder: Path, images: list[str]) -> dict[str, Path]:
    """The files of all photographs, before any is read."""
    found: dict[str, Path] = {}
    absent: list[Path] = []
    for image in images:
        name = Path(*image[:3], f"{image}.jpg")
        path = next((folder / place / name for place in PLACES if (folder / place / name).is_file()), None)
        if path is None:
            absent.append(name)
        else:
            found[image] = path
    if absent:
        count = f"{len(absent)} of {len(images)} photographs of the chosen clients are not at hand"
        raise InvalidData(f"{count}: put {absent[0]}, ... into {folder} or its folder images or train.")
    return found
