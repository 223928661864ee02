"""A user's own arrays in one npz file: inputs, labels and, if they are known, clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from plures.core.goals import CLASSIFICATION, REGRESSION
from plures.core.types import Batch
from plures.data.datasets import DataSet, Scaled
from plures.data.sources.finding import given_path
from plures.data.sources.images import channels_first, class_numbers_of, number_owners
from plures.data.sources.reading import Array, read_npz, wrong
from plures.data.sources.registry import source

CLIENTS = "client"
AS_NUMBERS = "Save numbers, with one dtype and without objects"


@source(
    "npz",
    about="your own arrays: path=FILE.npz with inputs (x), labels (y) and, if known, clients (client)",
)
def npz(path: str | Path, inputs: str = "x", labels: str = "y", clients: str = CLIENTS) -> DataSet:
    """Bytes are images, with channels first or last, and become pixels from 0 to 1; other inputs stay real numbers.

    Labels are class numbers, names of classes, or real numbers (regression). Clients are names or numbers.
    """
    file = given_path(path)
    named = () if clients == CLIENTS else (clients,)
    arrays = read_npz(file, inputs, labels, *named, optional=[clients])
    values, (targets, class_names) = _inputs(file, arrays[inputs]), _targets(file, arrays[labels])
    if len(values) != len(targets):
        raise wrong(file, f"has {len(values)} inputs but {len(targets)} labels", "Save one label per input")
    names, owners = number_owners(arrays[clients]) if clients in arrays else ((), [None])
    return DataSet(
        name="npz",
        examples=Batch(torch.from_numpy(values), torch.from_numpy(targets)),
        owners=owners[0],
        owner_names=names,
        class_names=class_names,
        goal=REGRESSION if targets.dtype.kind == "f" else CLASSIFICATION,
        prepare=Scaled() if values.dtype == np.uint8 else None,
    )


def _inputs(file: Path, values: Array) -> Array:
    if values.ndim < 2 or not len(values) or values.dtype.kind not in "biuf":
        raise wrong(file, f"has inputs of type {values.dtype} and shape {values.shape}", AS_NUMBERS)
    if values.dtype == np.uint8 and values.ndim in (3, 4):
        return channels_first(values)
    return np.require(values, np.float32, requirements=["C", "W"])


def _targets(file: Path, labels: Array) -> tuple[Array, tuple[str, ...]]:
    """Class numbers with the classes' names, or real numbers."""
    labels = labels.reshape(-1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "biufU":
        raise wrong(file, f"has labels of type {labels.dtype} and shape {labels.shape}", "Save one label per input")
    if labels.dtype.kind == "U":
        names, (numbers,) = number_owners(labels)
        return numbers, names
    if labels.dtype.kind == "f":
        return labels.astype(np.float32), ()
    whole = labels.astype(np.int64)
    return class_numbers_of(file, whole, int(whole.max()) + 1), ()
