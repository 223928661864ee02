"""Writes a file that is whole at any moment."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from plures.core.errors import RunFolderError


def write_whole(path: Path, content: str) -> None:
    """In place of what was there, also by several at once; whatever goes wrong, the old file is left as it was."""
    if path.is_dir():
        raise RunFolderError(f"Cannot write {path}: it is a folder. Choose a file with --out.")
    try:
        replace_whole(path, content.encode("utf-8"), writer=f".{os.getpid()}")
    except OSError as error:
        raise RunFolderError(
            f"Cannot write {path}: {error.strerror or error}. Choose another file with --out."
        ) from error


def replace_whole(path: Path, content: bytes, *, writer: str = "") -> None:
    """Written beside it and on the disk before it takes the place of what was there.

    Where several may write at once, each names itself, or one would take the other's file away.
    """
    partial = path.with_name(f".{path.name}{writer}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        flush_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def flush_folder(folder: Path) -> None:
    """Names are on the disk too; not every system can be asked for that."""
    if os.name != "posix":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
