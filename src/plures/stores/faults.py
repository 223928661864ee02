"""What can be wrong with a file of states, told with its name and what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from plures.core.errors import RunFolderError

DOCTOR = "'plures doctor RUN' lists what is damaged and saves the rest"


NO_TEXT = "what it says of its tables is no text"
"""Python's module cannot put into words then what SQLite tells."""


class DamagedState(RunFolderError):
    """What one client keeps cannot be read; others can."""

    def __init__(self, path: Path, client: int, why: str) -> None:
        self.path, self.client = path, client
        super().__init__(f"The state of client {client} in {path} is damaged: {why}. {DOCTOR}.")


class DamagedFile(RunFolderError):
    """A file of states that cannot be opened, or not be gone through."""

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        super().__init__(f"{path} is damaged: {why}. {DOCTOR}.")


def named(error: sqlite3.Error) -> str:
    """SQLite's name of an error, such as SQLITE_FULL; nothing where Python's module raised it itself."""
    return str(getattr(error, "sqlite_errorname", ""))


def is_damage(error: sqlite3.Error) -> bool:
    """Whether what was read is wrong, rather than that it could not be read now."""
    passing = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_NOMEM")
    return isinstance(error, sqlite3.DatabaseError) and not named(error).startswith(passing)


def told(path: Path, error: sqlite3.Error) -> RunFolderError:
    """The same in our words."""
    name = named(error)
    if name == "SQLITE_FULL":
        return RunFolderError(f"Cannot write {path}: the disk is full. Free some space, then resume the run.")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return RunFolderError(f"{path} is in use by another process. Wait until that has ended, or end it.")
    if name == "SQLITE_READONLY_ROLLBACK":
        return RunFolderError(
            f"A run was cut off while it wrote {path}; what it left half written has to be taken back first. "
            "Make the folder writable, or work with a copy of it, together with the file that ends in -journal."
        )
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return DamagedFile(path, str(error))
    if name.startswith("SQLITE_READONLY"):
        return RunFolderError(f"Cannot write {path}: it is read-only. Make the file and its folder writable.")
    if name == "SQLITE_TOOBIG":
        return RunFolderError(f"Cannot write {path}: what one client keeps is more than SQLite takes at once, 1 GB.")
    if name.startswith("SQLITE_CANTOPEN"):
        return RunFolderError(f"Cannot open {path}. Is its folder there, and can it be read and written?")
    return RunFolderError(f"Cannot use {path}: {error} ({name or type(error).__name__}). Is the disk all right?")
