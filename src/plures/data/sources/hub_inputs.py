"""Columns of images, arrays and text of a Hugging Face data set, as inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plures.core.errors import InvalidData
from plures.data.corpora import Text, text_dataset
from plures.data.datasets import DataSet
from plures.data.sources.arrow import ArrowTable
from plures.data.sources.columns import Origin, clients_of
from plures.data.sources.images import channels_first
from plures.data.sources.reading import Array, optional_package
from plures.data.text import words_of


def is_image(feature: Any) -> bool:
    return type(feature).__name__ == "Image"


def is_text(feature: Any) -> bool:
    return getattr(feature, "dtype", None) in ("string", "large_string")


def is_array(feature: Any) -> bool:
    """Lists and arrays of numbers, of any number of dimensions."""
    return isinstance(feature, list) or type(feature).__name__ in (
        *("List", "LargeList", "Sequence"),
        *("Array2D", "Array3D", "Array4D", "Array5D"),
    )


def read_images(parts: Sequence[Any], column: str, origin: Origin) -> Tensor:
    """Bytes of shape (N, C, H, W)."""
    optional_package("PIL", "An image")
    pictures = (np.asarray(row[column]) for part in parts for row in part.select_columns([column]))
    images = _filled(pictures, column, origin, "resize the images")
    if images.dtype != np.uint8:
        kind = f"images of type {images.dtype}"
        raise InvalidData(f"{origin}: column '{column}' has {kind}, not bytes. Convert them to grey or RGB.")
    return torch.from_numpy(channels_first(images))


def read_arrays(parts: Sequence[Any], column: str, origin: Origin) -> Tensor:
    """float32 of shape (N, ...)."""
    rows = (np.asarray(row[column]) for part in parts for row in part.select_columns([column]))
    arrays = _filled(rows, column, origin, "pad or cut them")
    if arrays.dtype.kind not in "biuf":
        raise InvalidData(f"{origin}: column '{column}' has arrays of {arrays.dtype}, not of numbers. Convert them.")
    return torch.from_numpy(arrays.astype(np.float32))


def _filled(rows: Iterator[Array], column: str, origin: Origin, remedy: str) -> Array:
    """All rows in one array, which is filled in place: a list of rows would need the memory twice."""
    first = next(rows)
    filled = np.empty((origin.num_rows, *first.shape), dtype=first.dtype)
    filled[0] = first
    for number, row in enumerate(rows, 1):
        if row.shape != first.shape:
            shapes = f"shape {row.shape}, but row 1 has {first.shape}"
            raise InvalidData(f"{origin.row(number)}: column '{column}' has {shapes}: {remedy} to one shape.")
        filled[number] = row
    return filled


def read_texts(
    parts: Sequence[Any], column: str, table: ArrowTable | None, client: str | None, length: int, vocabulary: int
) -> DataSet:
    """Sequences of the texts of a column; `table` has the clients."""
    rows = [
        (row[column] or "", place == 1) for place, part in enumerate(parts) for row in part.select_columns([column])
    ]
    owners = ["everybody"] * len(rows)
    if table is not None and client is not None:
        known = clients_of(table.words(client), table.origin)
        assert known.owners is not None
        owners = [known.names[owner] for owner in known.owners]
    texts = (
        Text(owner=owner, tokens=words_of(text), test=test) for owner, (text, test) in zip(owners, rows, strict=True)
    )
    dataset = text_dataset("hub", texts, length=length, vocabulary=vocabulary)
    return dataset if client is not None else replace(dataset, owners=None, test_owners=None, owner_names=())
