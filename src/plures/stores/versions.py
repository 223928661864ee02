"""What each client held after which round: rows of a state file, several for a client as long as they are needed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple, cast

from safetensors import SafetensorError

from plures.core.errors import RunFolderError
from plures.core.types import Params
from plures.stores.blobs import as_blob, checksum, from_blob
from plures.stores.faults import DamagedFile, DamagedState, is_damage, told
from plures.stores.state_file import StateFile

ROUND_BITS = 32
LAST_ROUND = 2**ROUND_BITS - 1
IDS_AT_ONCE = 10_000
SAVED, KEPT_FROM, HIGHEST = "round", "kept from", "highest client"
"""Noted in the file: the round of the last save, the first that can be gone back to, and how far clients go."""

INSERT = "INSERT OR REPLACE INTO states VALUES (?, ?, ?)"
DELETE = "DELETE FROM states WHERE id = ?"
LISTED = "SELECT max(id) FROM states INDEXED BY ids WHERE id BETWEEN ? AND ?"
LATEST = "SELECT id, checksum, state FROM states NOT INDEXED WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1"
IDS = f"SELECT id FROM states INDEXED BY ids WHERE id > ? ORDER BY id LIMIT {IDS_AT_ONCE}"
SEVERAL = (
    f"SELECT id >> {ROUND_BITS}, id & {LAST_ROUND} FROM states AS newer INDEXED BY ids "
    f"WHERE id & {LAST_ROUND} > ? AND EXISTS (SELECT 1 FROM states AS older INDEXED BY ids "
    f"WHERE older.id BETWEEN newer.id & ~{LAST_ROUND} AND newer.id - 1) ORDER BY id"
)
SUPERSEDED = (
    "DELETE FROM states WHERE id >= :first AND id < (SELECT max(id) FROM states WHERE id BETWEEN :first AND :last)"
)
LATER = f"DELETE FROM states WHERE id IN (SELECT id FROM states INDEXED BY ids WHERE id & {LAST_ROUND} > ?)"


class Version(NamedTuple):
    """What a client held after a round."""

    client: int
    round: int
    state: Params


class Versions:
    """The rows; what is written lasts from the next commit on."""

    def __init__(self, file: StateFile) -> None:
        self.file = file
        self._unsaved: dict[int, int] = {}
        """Clients with a row that is not committed, and its round."""
        self._several: dict[int, int] | None = None if file.is_there else {}
        """Clients that may have more than one row, and the round of the newest; None: not looked yet."""
        self._highest = self.noted(HIGHEST)

    def noted(self, name: str) -> int | None:
        if not self.file.is_there:
            return None
        with self.file.reading() as connection:
            row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        if row is not None and not isinstance(row[0], int):
            raise DamagedFile(self.file.path, f"its '{name}' is no number")
        return None if row is None else int(row[0])

    def note(self, name: str, value: int) -> None:
        with self.file.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def latest(self, client: int, round: int) -> Params | None:
        """What a client held after a round, or after the last one before that changed it."""
        if not self.file.is_there:
            return None
        span = (key(client, 0), key(client, round))
        with self.file.snapshot() as connection:
            try:
                listed = connection.execute(LISTED, span).fetchone()[0]
                row = connection.execute(LATEST, span).fetchone()
            except sqlite3.Error as error:
                raise damaged(self.file, client, error) from error
        return self._read(client, listed, row)

    def _read(self, client: int, listed: int | None, row: tuple[int, object, object] | None) -> Params | None:
        """An older row must not stand for one that is lost: so the index is asked as well."""
        if row is None and listed is None:
            return None
        try:
            return decoded(listed, *(row or (None, None, None)))
        except ValueError as error:
            raise DamagedState(self.file.path, client, str(error)) from error

    def insert(self, versions: Iterable[Version]) -> None:
        """Nothing that was there is touched."""
        rows = ((key(one.client, one.round), as_blob(one.state)) for one in versions)
        with self.file.writing() as connection:
            connection.executemany(INSERT, ((id, checksum(id, blob), blob) for id, blob in rows))

    def delete(self, round: int, clients: Iterable[int]) -> None:
        with self.file.writing() as connection:
            connection.executemany(DELETE, ((key(client, round),) for client in clients))

    def in_force(self, round_of: dict[int, int]) -> None:
        """Rows that count from now on, or will be written next: others since the last commit need not be kept."""
        stale = [key(client, self._unsaved[client]) for client in round_of if client in self._unsaved]
        self._unsaved.update(round_of)
        self._highest = max([*round_of, self._highest or 0])
        if self._several is not None:
            self._several.update(round_of)
        with self.file.writing() as connection:
            connection.executemany(DELETE, ((id,) for id in stale))

    def save(self, round: int) -> None:
        """What was written lasts from now on, as of this round."""
        self.note(SAVED, round)
        if self._highest is not None:
            self.note(HIGHEST, self._highest)
        self.file.commit()
        self._unsaved.clear()

    def forget_before(self, round: int) -> None:
        """Delete what nobody needs who looks at this round or a later one; at once, unless there is a save to come."""
        alone, several = not self.file.has_uncommitted, self._those_with_several()
        spans = [{"first": key(client, 0), "last": key(client, round)} for client in sorted(several)]
        with self.file.writing() as connection:
            connection.executemany(SUPERSEDED, spans)
        self.note(KEPT_FROM, max(round, self.noted(KEPT_FROM) or 0))
        self._several = {client: newest for client, newest in several.items() if newest > round}
        if alone:
            self.file.commit()

    def _those_with_several(self) -> dict[int, int]:
        if self._several is None:
            kept_from = self.noted(KEPT_FROM) or 0  # nobody has two rows up to this round
            with self.file.reading() as connection:
                self._several = dict(connection.execute(SEVERAL, (kept_from,)))
        return self._several

    def roll_back(self, round: int) -> None:
        """Forget what was not committed, and every row after a round; that lasts."""
        self.file.roll_back()
        self._several = None
        with self.file.writing() as connection:
            connection.execute(LATER, (round,))
        self.save(round)

    def clients(self, round: int) -> Iterator[int]:
        """Those with a row at this round or before, in order, read some at a time."""
        last, client = -1, -1
        while ids := self._ids_after(last):
            if any(after <= before for before, after in pairwise([last, *ids])):
                raise DamagedFile(self.file.path, "its index is out of order")  # it could be gone round for ever
            for id in ids:
                if id & LAST_ROUND <= round and id >> ROUND_BITS != client:
                    client = id >> ROUND_BITS
                    yield client
            last = ids[-1]

    def used_bytes(self) -> int:
        """Of the file, without what is free in it."""
        if not self.file.is_there:
            return 0
        with self.file.reading() as connection:
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * size)

    def _ids_after(self, id: int) -> list[int]:
        if not self.file.is_there:
            return []
        with self.file.reading() as connection:
            return self._numbers(row[0] for row in connection.execute(IDS, (id,)))

    def _numbers(self, found: Iterable[object]) -> list[int]:
        """What a sound file has there."""
        numbers = list(found)
        if any(type(number) is not int for number in numbers):
            raise DamagedFile(self.file.path, "there is something else where numbers should be")
        return cast(list[int], numbers)


def key(client: int, round: int) -> int:
    """Of a row: versions of a client lie side by side, the newest last."""
    return client << ROUND_BITS | round


def decoded(listed: int | None, id: int | None, told_sum: object, blob: object) -> Params:
    """The state in a row; a ValueError says what is wrong with it."""
    if id is None or id != listed:
        raise ValueError("the table and its index do not have the same rows")
    if not isinstance(blob, bytes) or checksum(id, blob) != told_sum:
        raise ValueError("its bytes are not those that were written")
    try:
        return from_blob(blob)
    except (SafetensorError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"its bytes are no state ({error})") from error


def damaged(file: StateFile, client: int, error: sqlite3.Error) -> RunFolderError:
    """An error at one client's row."""
    return DamagedState(file.path, client, str(error)) if is_damage(error) else told(file.path, error)
