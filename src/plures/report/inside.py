"""Folders that a file names stay below the folder that the file is in."""

from __future__ import annotations

from pathlib import Path

from plures.core.errors import RunFolderError
from plures.report import records


def inside(folder: Path, name: str, *, told_by: str = records.STUDY) -> Path:
    """What a file of the folder names; an error where that is not below the folder, also by way of a link."""
    path = folder / name
    try:
        within, place = path.resolve(), folder.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a name that no file can have, links that go in circles
        raise RunFolderError(f"{folder / told_by} names {name!r:.80}, which is no folder: {error}.") from error
    if within == place or not within.is_relative_to(place):
        raise RunFolderError(
            f"{folder / told_by} names {name!r:.80}, which is not below its own folder. Do not use it, unless you know "
            "who has written it."
        )
    return path
