"""Writes a file that is whole at any moment."""

from __future__ import annotations

import os
from pathlib import Path

from plures.core.errors import RunFolderError


def write_whole(path: Path, content: str) -> None:
    """In place of what was there; whatever goes wrong, the old file is left as it was."""
    if path.is_dir():
        raise RunFolderError(f"Cannot write {path}: it is a folder. Choose a file with --out.")
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise RunFolderError(
            f"Cannot write {path}: {error.strerror or error}. Choose another file with --out."
        ) from error
