"""Motion of a phone on people's waists, by person."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plures.core.types import Batch
from plures.data.datasets import DataSet
from plures.data.sources.finding import find_form, given_path
from plures.data.sources.images import class_numbers_of, number_owners
from plures.data.sources.reading import Array, read_npz, wrong
from plures.data.sources.registry import source

FORM = "x has shape (windows, channels, time); y, subject and recording have one whole number for each window"


def as_float32(inputs: Tensor) -> Tensor:
    """Half precision, in which measurements are held, to what networks take."""
    return inputs.to(torch.float32)


@source(
    "uci-har",
    about="10,299 windows of a phone's motion, 6x128, six activities; clients are 30 people",
    files=("uci-har/uci-har.npz with x, y, subject, recording and classes",),
)
def uci_har(*, path: str | Path | None = None) -> DataSet:
    """Acceleration in g, rotation in rad/s, as measured; windows of one recording overlap and are one group."""
    found = find_form("uci-har", {"npz": ("uci-har/uci-har.npz",)})[1][0] if path is None else given_path(path)
    arrays = read_npz(found, "x", "y", "subject", "recording", "classes")
    windows = _windows(found, arrays)
    class_names = tuple(map(str, arrays["classes"].reshape(-1)))
    labels = class_numbers_of(found, arrays["y"], len(class_names))
    names, (owners,) = number_owners(arrays["subject"])
    _, (groups,) = number_owners(arrays["recording"])
    return DataSet(
        name="uci-har",
        examples=Batch(torch.from_numpy(windows), torch.from_numpy(labels)),
        owners=owners,
        owner_names=names,
        groups=groups,
        class_names=class_names,
        prepare=as_float32,
    )


def _windows(path: Path, arrays: dict[str, Array]) -> Array:
    windows = arrays["x"]
    if windows.ndim != 3 or windows.dtype.kind != "f" or not len(windows):
        raise wrong(path, f"has an x of type {windows.dtype} and shape {windows.shape}", FORM)
    for name in ("y", "subject", "recording"):
        array = arrays[name]
        if array.shape != windows.shape[:1] or array.dtype.kind not in "iu":
            raise wrong(path, f"has a '{name}' of type {array.dtype} and shape {array.shape}", FORM)
    if not bool(np.isfinite(windows).all()):
        raise wrong(path, "has NaN or infinite numbers in x")
    return windows.astype(np.float16, copy=False)
