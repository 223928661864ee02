"""Finds run folders below a folder."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from plures.report import records


def is_run(folder: Path) -> bool:
    return (folder / records.ROUNDS).is_file() or (folder / records.RESULT).is_file()


def is_study(folder: Path) -> bool:
    """Whether it is a folder of several runs meant to be compared, finished or not."""
    return not is_run(folder) and ((folder / records.STUDY).is_file() or (folder / records.RUNNING).is_file())


def find_runs(folder: Path) -> Iterator[Path]:
    """Every run folder from here on down; runs hold no other runs."""
    if is_run(folder):
        yield folder
        return
    yield from (path for path in folders_below(folder) if is_run(path))


def folders_below(folder: Path, *, most: int | None = None) -> Iterator[Path]:
    """Folders that could be runs or hold some, the nearest first; at most so many of all kinds are looked at."""
    left: deque[Path] = deque([folder])
    looked_at = 0
    while left:
        for path in subfolders(left.popleft()):
            looked_at += 1
            if most is not None and looked_at > most:
                return
            yield path
            if not is_run(path):
                left.append(path)


def subfolders(folder: Path) -> list[Path]:
    """In order of their names, without hidden ones and links, for those may lead in circles; none if unreadable."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if not name.startswith(".")]
