"""Omniglot: 1,623 characters of 50 alphabets, each drawn once by 20 people; train and test are split by drawing."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from plures.core.types import Batch
from plures.data.datasets import DataSet, Scaled
from plures.data.dealing import Indices, keyed_generator
from plures.data.sources.finding import find_form
from plures.data.sources.images import number_in_order
from plures.data.sources.omniglot_drawings import PARTS, Drawings, from_folders, from_npz
from plures.data.sources.reading import check_choice, check_count
from plures.data.sources.registry import source

Clients = Literal["alphabet", "drawer"]

TESTED = 4
"""One drawing in four is for testing: 5 of 20."""

TURNS = 4


@source(
    "omniglot",
    about="1,623 characters of 50 alphabets, 20 drawings each, 1x28x28; clients are alphabets, or their drawers",
    files=(
        "omniglot/images_background.npz, images_evaluation.npz and alphabets.json, or the published folders"
        " omniglot/images_background/*/*/*.png (alphabet, character) and images_evaluation",
    ),
)
def omniglot(
    size: int = 28, clients: Clients = "alphabet", rotations: bool = False, leaky: bool = False, seed: int = 0
) -> DataSet:
    """Ink bright, pixels from 0 to 1. Class numbers are global; label_space = "local" renumbers them per alphabet.

    Of each character 15 drawings are for training and 5, drawn by `seed`, for testing; `rotations` adds copies of the
    training drawings turned by 90, 180 and 270 degrees, of the same class. With leaky=True it is as in the PFLEGO
    papers: all drawings are turned first and their copies then divided at random, so that turned copies of test
    drawings are trained on and scores come out too high. Use that only to compare with published numbers.
    With clients="drawer" each has one drawing of a character: whoever is tested on it has not trained on it.
    """
    check_choice("clients", clients, ("alphabet", "drawer"))
    check_count("size", size)
    drawings = _find_drawings(size)
    train, test = _leaky_rows(drawings, seed) if leaky else _rows(drawings, rotations, seed)
    alphabets, places = number_in_order(drawings.alphabets)
    num_drawers = drawings.images.shape[1]
    names = alphabets
    if clients == "drawer":
        names = tuple(f"{name}/{drawer + 1:02d}" for name in alphabets for drawer in range(num_drawers))

    def owners(rows: Indices) -> Indices:
        alphabet = places[rows[:, 0]]
        return alphabet if clients == "alphabet" else alphabet * num_drawers + rows[:, 1]

    return DataSet(
        name="omniglot",
        examples=_taken(drawings, train),
        test=_taken(drawings, test),
        owners=owners(train),
        test_owners=owners(test),
        owner_names=names,
        groups=None if leaky else train[:, 0] * num_drawers + train[:, 1],
        class_names=tuple(f"{a}/{c}" for a, c in zip(drawings.alphabets, drawings.characters, strict=True)),
        prepare=Scaled(),
    )


def _find_drawings(size: int) -> Drawings:
    folders = tuple(f"omniglot/images_{part}" for part in PARTS)
    npz = ("omniglot/alphabets.json", *(f"{folder}.npz" for folder in folders))
    form, paths = find_form("omniglot", {"npz": npz, "folders": folders})
    return from_npz(paths[0], paths[1:], size) if form == "npz" else from_folders(paths, size)


def _rows(drawings: Drawings, rotations: bool, seed: int) -> tuple[Indices, Indices]:
    """Rows (character, drawer, turn) for training and for testing; test drawings are never turned.

    Of four characters in a row each drawer is tested on one, so that no drawer is without test drawings.
    """
    num_characters, num_drawers = drawings.images.shape[:2]
    tested = np.zeros((num_characters, num_drawers), dtype=bool)
    share = max(1, num_drawers // TESTED)
    for alphabet in dict.fromkeys(drawings.alphabets):
        rng = keyed_generator(seed, "omniglot", alphabet)
        order = np.arange(0)
        for character in np.flatnonzero(np.array(drawings.alphabets) == alphabet):
            order = order[share:] if len(order) >= 2 * share else rng.permutation(num_drawers)
            tested[character, order[:share]] = True
    train, test = np.argwhere(~tested), np.argwhere(tested)
    turns = range(TURNS if rotations else 1)
    return np.concatenate([_turned(train, turn) for turn in turns]), _turned(test, 0)


def _leaky_rows(drawings: Drawings, seed: int) -> tuple[Indices, Indices]:
    """All four turns of all drawings of a character, shuffled and cut 3:1."""
    num_characters, num_drawers = drawings.images.shape[:2]
    num_tested = num_drawers * TURNS // TESTED
    grid = np.stack(np.meshgrid(np.arange(num_drawers), np.arange(TURNS), indexing="ij"), axis=-1).reshape(-1, 2)
    rng = keyed_generator(seed, "omniglot", "leaky")
    rows = np.stack([np.insert(rng.permutation(grid), 0, character, axis=1) for character in range(num_characters)])
    return rows[:, num_tested:].reshape(-1, 3), rows[:, :num_tested].reshape(-1, 3)


def _turned(drawn: Indices, turn: int) -> Indices:
    return np.insert(drawn, 2, turn, axis=1)


def _taken(drawings: Drawings, rows: Indices) -> Batch:
    images = np.empty((len(rows), 1, *drawings.images.shape[2:]), np.uint8)
    for turn in np.unique(rows[:, 2]):
        chosen = rows[:, 2] == turn
        images[chosen, 0] = np.rot90(drawings.images, turn, axes=(2, 3))[rows[chosen, 0], rows[chosen, 1]]
    return Batch(torch.from_numpy(images), torch.from_numpy(rows[:, 0].astype(np.int64)))
