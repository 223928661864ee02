"""Which form of a data set is at hand, in which folder of PLURES_DATA."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path

from plures.core.errors import InvalidConfig, InvalidData
from plures.data.sources.registry import VARIABLE, Source, data_folders, missing

Forms = Mapping[str, tuple[str, ...]]
"""By name of the form, one pattern for each of its files."""

AtHand = str
"""yes, no, or what must be given: "give path"."""


def find_form(name: str, forms: Forms) -> tuple[str, list[Path]]:
    """The first form whose files are all in one folder, the folders in order; or one error.

    Where a pattern has several files, the first in the alphabet is taken.
    """
    for folder in data_folders():
        for form, patterns in forms.items():
            found = [path for pattern in patterns for path in sorted(folder.glob(pattern))[:1]]
            if len(found) == len(patterns):
                return form, found
    raise missing(name)


def given_path(path: str | Path) -> Path:
    """A user's file or folder: as it is, or below a folder of PLURES_DATA."""
    if not isinstance(path, str | Path):
        raise InvalidConfig(f"path is {path!r}: give the name of a file or folder.")
    wanted = Path(path).expanduser()
    for place in (wanted, *(folder / wanted for folder in data_folders())):
        if place.exists():
            return place
    raise InvalidData(f"There is no {wanted}: give a path that there is, from here or from a folder of {VARIABLE}.")


def at_hand(entry: Source) -> AtHand:
    """Whether a source can be loaded as it is, judged by names of files alone."""
    for name, parameter in inspect.signature(entry.load).parameters.items():
        if parameter.default is parameter.empty:
            return f"give {name}"
    return "yes" if all(map(_is_found, entry.files)) else "no"


def _is_found(text: str) -> bool:
    """Whether one of the paths in a text, such as "a/*.gz, or a/b.npz", is in some folder, perhaps further down."""
    patterns = [word.strip("(),;:.") for word in text.split() if "/" in word]
    deeper = ["/**/".join(pattern.split("/", 1)) for pattern in patterns]
    return any(True for pattern in (*patterns, *deeper) for folder in data_folders() for _ in folder.glob(pattern))
