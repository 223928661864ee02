"""Every data set by name: what it is, where its files are looked for, and what to do if they are not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec

from plures.core.errors import InvalidConfig, InvalidData, did_you_mean
from plures.data.datasets import DataSet

VARIABLE = "PLURES_DATA"
"""Folders that hold data sets, separated as in PATH."""

Options = ParamSpec("Options")


@dataclass(frozen=True, kw_only=True)
class Source:
    """One row of the table of data sets."""

    name: str
    about: str
    """One sentence: what, how much, which natural clients."""
    files: tuple[str, ...]
    """What is looked for in each folder of PLURES_DATA, in words a person can follow; none: it needs no file."""
    load: Callable[..., DataSet]
    hub: str | None = None
    """Its name on the Hugging Face hub, where it can be fetched from."""


SOURCES: dict[str, Source] = {}


def source(
    name: str, *, about: str, files: tuple[str, ...] = (), hub: str | None = None
) -> Callable[[Callable[Options, DataSet]], Callable[Options, DataSet]]:
    """Put a loader into the table under a name."""

    def add(load: Callable[Options, DataSet]) -> Callable[Options, DataSet]:
        SOURCES[name] = Source(name=name, about=about, files=files, load=load, hub=hub)
        for known in sorted(SOURCES):
            SOURCES[known] = SOURCES.pop(known)
        return load

    return add


def find_source(name: str) -> Source:
    """A data set by the name that `plures data list` has; an unknown one is an error that tells near names."""
    if name not in SOURCES:
        raise InvalidConfig(f"There is no data source '{name}'. {did_you_mean(name, SOURCES)}")
    return SOURCES[name]


def data_folders() -> list[Path]:
    """The folders of PLURES_DATA that there are."""
    named = [Path(text).expanduser() for text in os.environ.get(VARIABLE, "").split(os.pathsep) if text]
    return [folder for folder in named if folder.is_dir()]


def find_files(name: str, *patterns: str) -> list[Path]:
    """The first file of each pattern, such as "mnist/train-images-idx3-ubyte*", all from one folder; or one error.

    `name` is a data set of the table: its row says, in the error, what would have been found.
    """
    for folder in data_folders():
        found = [next(iter(sorted(folder.glob(pattern))), None) for pattern in patterns]
        if found and all(path is not None for path in found):
            return [path for path in found if path is not None]
    raise missing(name)


def missing(name: str) -> InvalidData:
    """What to say where a data set's files are not at hand."""
    entry, folders = SOURCES[name], data_folders()
    looked = ", ".join(map(str, folders)) if folders else f"nowhere, for {VARIABLE} names no folder that there is"
    wanted = "; ".join(entry.files)
    fetch = f" Online, `plures data get {name}` fetches it." if entry.hub else ""
    return InvalidData(
        f"The data set '{name}' is not at hand (looked in: {looked}). Put into a folder of {VARIABLE}: {wanted}.{fetch}"
    )
