"""An SQLite file of states: how it is opened, begun, committed, left alone by forked processes, and closed."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from plures.core.errors import RunFolderError
from plures.stores.faults import NO_TEXT, DamagedFile, named, told

APPLICATION = int.from_bytes(b"Plur", "big")
FORMAT = 1
TABLES = (
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {FORMAT}",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID",
    "CREATE TABLE states (id INTEGER PRIMARY KEY, checksum INTEGER, state BLOB)",
    # By itself, since a walk over the table passes a part of each state.
    "CREATE INDEX ids ON states (id)",
)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How SQLite goes about it; docs/decisions/0015-client-store.md has the figures."""

    page_bytes: int | None = None
    """None: small pages for small states, since a page is written whole; large ones are fewer for large states."""
    journal: str = "delete"
    synchronous: str = "extra"
    """With a journal that is deleted, only this makes a commit last through a loss of power."""
    cache_bytes: int = 16 * 2**20
    wait_seconds: float = 30.0
    """For another process that has the file."""


SMALL_PAGE, LARGE_PAGE, LARGE_STATE = 4096, 65536, 2**20


class StateFile:
    """One connection to one file, which is made with the first write."""

    def __init__(self, path: Path, *, read_only: bool = False, layout: Layout | None = None) -> None:
        self.path, self.read_only, self.layout = path, read_only, layout or Layout()
        self._connection: sqlite3.Connection | None = None
        self._process, self._fault, self._begun = os.getpid(), "", False
        self.typical_bytes = 0
        """Of a state; to be told before the first write."""
        if path.exists() and path.stat().st_size > 0:
            self._connection = self._opened()
        self.is_there = self._connection is not None
        OPEN.add(self)

    @property
    def is_broken(self) -> bool:
        """After an error in writing."""
        return bool(self._fault)

    @property
    def has_uncommitted(self) -> bool:
        return self._begun

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Errors are told with the file's name."""
        connection = self._usable()
        try:
            yield connection
        except sqlite3.Error as error:
            raise told(self.path, error) from error
        except UnicodeDecodeError as error:
            raise DamagedFile(self.path, NO_TEXT) from error

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """For a few short reads that belong together, while another process may write."""
        with self.reading() as connection:
            if not self.read_only:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.rollback()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Part of the open transaction, or of a new one; after an error nothing can be done with the file any more."""
        if self.read_only:
            raise RunFolderError(f"{self.path} was opened for reading; nothing can be written to it.")
        if not self.is_there:
            self._connection, self.is_there = self._made(), True
        connection = self._usable()
        try:
            if not self._begun:
                connection.execute("BEGIN IMMEDIATE")
                self._begun = True
            yield connection
        except sqlite3.Error as error:
            self._give_up(connection, error)

    def commit(self) -> None:
        """What was written since the last commit lasts."""
        connection = self._usable()
        try:
            if self._begun:
                connection.execute("COMMIT")
                self._begun = False
        except sqlite3.Error as error:
            self._give_up(connection, error)

    def roll_back(self) -> None:
        """Forget what was written since the last commit."""
        with self.reading() as connection:
            connection.rollback()
            self._begun = False

    def close(self) -> None:
        """Nothing that was not committed is kept; one file is left."""
        connection, self._connection = self._connection, None
        if connection is not None and os.getpid() == self._process:
            try:
                connection.rollback()
                connection.close()
            except sqlite3.Error as error:
                raise told(self.path, error) from error

    def leave_to_parent(self) -> None:
        """In a forked process: SQLite's end would take the parent's transaction back, so it never comes."""
        if self._connection is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))

    def _usable(self) -> sqlite3.Connection:
        self._expect_well()
        if self._connection is None:
            raise RunFolderError(f"{self.path} is closed.")
        if self._begun and not self._connection.in_transaction:
            self._fault = f"SQLite has taken back what was not saved in {self.path}."
            raise RunFolderError(self._fault)
        return self._connection

    def _expect_well(self) -> None:
        if self._fault:
            raise RunFolderError(f"An earlier error has ended the work with this file: {self._fault}")
        if os.getpid() != self._process:
            raise RunFolderError(f"{self.path} was opened by another process, and only that can use it.")

    def _give_up(self, connection: sqlite3.Connection, error: sqlite3.Error) -> NoReturn:
        """Some of what memory believes to be in the file may be gone with the transaction."""
        fault = told(self.path, error)
        self._fault = str(fault)
        try:
            connection.rollback()
        except sqlite3.Error:
            connection.close()  # whoever opens the file next takes the rest back
            self._connection = None
        raise fault from error

    def _made(self) -> sqlite3.Connection:
        self._expect_well()
        page_bytes = self.layout.page_bytes or (SMALL_PAGE if self.typical_bytes < LARGE_STATE else LARGE_PAGE)
        try:
            connection = connected(self.path, "rwc", self.layout)
            connection.execute(f"PRAGMA page_size = {page_bytes}")
            connection.execute("BEGIN IMMEDIATE")
            for statement in TABLES:
                connection.execute(statement)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise told(self.path, error) from error
        return connection

    def _opened(self) -> sqlite3.Connection | None:
        """The file that is there; None where no table was ever committed."""
        try:
            connection = self._taken_back()
            application, version, tables = header(connection)
        except sqlite3.Error as error:
            raise told(self.path, error) from error
        if not tables:
            connection.close()
            return None
        if (application, version) != (APPLICATION, FORMAT):
            connection.close()
            raise RunFolderError(foreign(self.path, application, version))
        return connection

    def _taken_back(self) -> sqlite3.Connection:
        """What a killed process left half written is taken back first; a reader may do so where it can write."""
        if not self.read_only:
            return connected(self.path, "rw", self.layout)
        try:
            return connected(self.path, "ro", self.layout)
        except sqlite3.Error as error:
            if named(error) != "SQLITE_READONLY_ROLLBACK" or not os.access(self.path.parent, os.W_OK):
                raise
        connected(self.path, "rw", self.layout).close()
        return connected(self.path, "ro", self.layout)


def connected(path: Path, mode: str, layout: Layout) -> sqlite3.Connection:
    """A connection that has looked into the file."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=layout.wait_seconds,
    )
    settings: dict[str, str | int]
    if mode == "ro":
        settings = {"writable_schema": "on"}  # first, or nothing could be read of a file that was cut short
    else:
        settings = {"journal_mode": layout.journal, "synchronous": layout.synchronous}
    settings |= {"cache_size": -layout.cache_bytes // 1024, "secure_delete": "off", "cell_size_check": "on"}
    try:
        for name, value in settings.items():
            connection.execute(f"PRAGMA {name} = {value}")
        header(connection)
    except sqlite3.Error:
        connection.close()
        raise
    except UnicodeDecodeError as error:
        connection.close()
        raise sqlite3.DatabaseError(NO_TEXT) from error
    return connection


def header(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Whose file it is, its format, and how many tables it has."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    return application, version, connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def foreign(path: Path, application: int, version: int) -> str:
    if application != APPLICATION:
        return f"{path} is no file of client states: another program made it. Is this the folder of a run?"
    return f"{path} has format {version}; this version of Plures reads format {FORMAT}. Use the version that wrote it."


def leave_all_to_parent() -> None:
    for file in OPEN:
        file.leave_to_parent()


OPEN = weakref.WeakSet[StateFile]()
if hasattr(os, "register_at_fork"):  # where processes can be forked
    os.register_at_fork(after_in_child=leave_all_to_parent)
