"""Changes to the files of a run: each is whole at any moment, can be repeated, and keeps what it replaces."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain, count
from pathlib import Path
from typing import Any

from plures.core.errors import RunFolderError
from plures.recipes.doctor_findings import Done, done_json
from plures.recipes.folder_reading import read
from plures.report import records
from plures.report.json_text import as_json_text
from plures.report.writing import flush_folder, replace_whole


@contextmanager
def changing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFolderError(f"Cannot repair {path}: {error.strerror or error}.") from error


def replaced(path: Path, content: bytes) -> None:
    """A file with another content; the original is kept beside it."""
    with changing(path):
        keep_original(path)
        replace_whole(path, content)


def keep_original(path: Path) -> Path:
    """Under another name as well; an original that was kept before stays."""
    for kept in names_beside(path):
        if not kept.exists():
            linked(path, kept)
            return kept
        if kept.samefile(path):  # of a repair that was cut off
            return kept
    raise AssertionError("names do not end")


def linked(path: Path, kept: Path) -> None:
    try:
        os.link(path, kept)
    except OSError:  # not every file system has links
        shutil.copy2(path, kept)
    flush_folder(kept.parent)


def names_beside(path: Path) -> Iterator[Path]:
    ends = chain([""], map(str, count(2)))
    return (path.with_name(f"{path.name}{records.DAMAGED}{end}") for end in ends)


def set_aside(path: Path) -> Done:
    """Out of the way, and still there."""
    with changing(path):
        kept = next(name for name in names_beside(path) if not name.exists())
        path.replace(kept)
        flush_folder(kept.parent)
    return Done(file=path.name, what=f"set aside as {kept.name}")


def removed(*paths: Path) -> None:
    """What nobody needs."""
    for path in paths:
        with changing(path):
            path.unlink(missing_ok=True)


def put_in_place(fresh: Path, path: Path) -> None:
    """A new file instead of a damaged one, which is kept."""
    with changing(path):
        if path.exists():
            keep_original(path)
        fresh.replace(path)
        flush_folder(path.parent)


def note_repairs(folder: Path, done: Sequence[Done]) -> None:
    """Added to what was repaired before."""
    if not done:
        return
    path = folder / records.DOCTOR
    now = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "plures": version("plures")}
    try:
        before = noted_repairs(folder) if path.is_file() else []
    except RunFolderError:
        set_aside(path)
        before = []
    told = {"repairs": [*before, *(now | done_json(one) for one in done)]}
    with changing(path):
        replace_whole(path, (as_json_text(told, indent=2) + "\n").encode())


def noted_repairs(folder: Path) -> list[dict[str, Any]]:
    """What doctor.json tells."""

    def repairs_in(path: Path) -> list[dict[str, Any]]:
        found = [dict(one) for one in json.loads(path.read_text(encoding="utf-8"))["repairs"]]
        if not all(isinstance(client, int) for one in found for client in one.get("clients", ())):
            raise ValueError("a client is no number")
        return found

    told: list[dict[str, Any]] = read(folder / records.DOCTOR, repairs_in)
    return told
