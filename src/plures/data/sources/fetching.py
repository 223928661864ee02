"""Fetches a data set from the Hugging Face hub and writes the npz file that its loader reads."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from plures.core.errors import InvalidConfig, InvalidData
from plures.data.sources.reading import Array, optional_package
from plures.data.sources.registry import VARIABLE, Source, data_folders, find_source

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What the columns of a set on the hub are called."""

    image: str = "image"
    labels: Mapping[str, str] = field(default_factory=lambda: {"y": "label"})
    """By name of the array that they are written to."""
    writer: str | None = None
    """Where examples have writers, all splits become one, and writers are the natural clients."""


COLUMNS = {
    "mnist": Columns(),
    "fashion-mnist": Columns(),
    "cifar-10": Columns(image="img"),
    "cifar-100": Columns(image="img", labels={"y": "fine_label", "coarse": "coarse_label"}),
    "femnist": Columns(labels={"y": "character"}, writer="writer_id"),
}


def fetch(name: str, into: Path | None = None) -> Path:
    """The npz file of a data set below `into`, or the first folder of PLURES_DATA; one that is there is left alone."""
    entry = find_source(name)
    if entry.hub is None or name not in COLUMNS:
        known = ", ".join(sorted(COLUMNS))
        raise InvalidConfig(f"'{name}' cannot be fetched: {_by_hand(entry)}. Can be fetched: {known}.")
    target = _folder(into) / name / f"{name}.npz"
    if not target.exists():
        _write(target, _arrays(_load_splits(entry), COLUMNS[name], entry))
    return target


def _by_hand(entry: Source) -> str:
    if not entry.files:
        return "it needs no file, or one of your own"
    return f"put into a folder of {VARIABLE}: {'; '.join(entry.files)}"


def _folder(into: Path | None) -> Path:
    folders = data_folders() if into is None else [into]
    if not folders:
        raise InvalidConfig(f"{VARIABLE} names no folder that there is: set it, or give --into FOLDER.")
    return folders[0]


def _load_splits(entry: Source) -> Mapping[str, Any]:
    datasets = optional_package("datasets", "Fetching from the Hugging Face hub")
    # The errors of these belong to no family that can be named without importing them.
    networks = [sys.modules[package].HTTPError for package in ("httpx", "httpx2") if package in sys.modules]
    try:
        splits: Mapping[str, Any] = datasets.load_dataset(entry.hub)
    except (OSError, ValueError, RuntimeError, *networks) as error:
        what = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise InvalidData(f"Cannot fetch {entry.hub}: {what}. Go online, or {_by_hand(entry)}.") from None
    return splits


def _arrays(splits: Mapping[str, Any], columns: Columns, entry: Source) -> dict[str, Array]:
    if columns.writer is not None:
        rows = (row for split in splits.values() for row in split)
        return _by_writer(rows, sum(map(len, splits.values())), columns, entry)
    arrays: dict[str, Array] = {}
    for part in ("train", "test"):
        if part not in splits:
            raise InvalidData(f"{entry.hub} has no part '{part}', only: {', '.join(splits)}. {_changed(entry)}.")
        read = _read_rows(splits[part], len(splits[part]), [columns.image, *columns.labels.values()], entry)
        arrays[f"x_{part}"] = read[columns.image]
        arrays |= {f"{array}_{part}": read[column] for array, column in columns.labels.items()}
    return arrays


def _by_writer(rows: Iterable[Row], count: int, columns: Columns, entry: Source) -> dict[str, Array]:
    label, writer = columns.labels["y"], str(columns.writer)
    read = _read_rows(rows, count, [columns.image, label, writer], entry)
    writers, places = np.unique(read[writer], return_inverse=True)
    return {"x": read[columns.image], "y": read[label], "writer": places, "writers": writers}


def _read_rows(rows: Iterable[Row], count: int, columns: list[str], entry: Source) -> dict[str, Array]:
    """Columns as arrays; the first one is of images, which go where they stay."""
    images: Array | None = None
    others: dict[str, list[Any]] = {column: [] for column in columns[1:]}
    for place, row in enumerate(rows):
        absent = [column for column in columns if column not in row]
        if absent:
            raise InvalidData(f"{entry.hub} has no column '{absent[0]}', only: {', '.join(row)}. {_changed(entry)}.")
        image = np.asarray(row[columns[0]], np.uint8)
        images = np.empty((count, *image.shape), np.uint8) if images is None else images
        images[place] = image
        for column, values in others.items():
            values.append(row[column])
    if images is None:
        raise InvalidData(f"{entry.hub} has no examples. {_changed(entry)}.")
    return {columns[0]: images} | {column: np.array(values) for column, values in others.items()}


def _changed(entry: Source) -> str:
    return f"It has changed since this was written: {_by_hand(entry)}"


def _write(target: Path, arrays: Mapping[str, Array]) -> None:
    """All or nothing: a file under its name is whole."""
    partial = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        partial.replace(target)
    except OSError as error:
        raise InvalidConfig(f"Cannot write {target}: {error.strerror}. Choose another folder with --into.") from None
    finally:
        _forget(partial)


def _forget(partial: Path) -> None:
    try:
        partial.unlink(missing_ok=True)
    except OSError:  # its folder is none: there is nothing to remove
        return
