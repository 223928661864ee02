"""What is damaged in a file of states, and a new file with the rest."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from plures.core.errors import RunFolderError
from plures.stores.faults import is_damage
from plures.stores.state_file import Layout, StateFile
from plures.stores.versions import HIGHEST, INSERT, KEPT_FROM, LAST_ROUND, ROUND_BITS, SAVED, decoded, key

CLIENTS_AT_ONCE = 1024
MOST_CLIENTS = 2 ** (63 - ROUND_BITS) - 1
"""More have no place in a file."""
MOST_FINDINGS = 100
WAYS = ("INDEXED BY ids", "NOT INDEXED")
"""Two lists of the same rows; where one is damaged the other may not be."""


class Unreadable(NamedTuple):
    """A state that cannot be read; where not even its round can, that is None."""

    client: int
    round: int | None
    why: str


@dataclass(frozen=True, kw_only=True)
class Damage:
    """How a file of states stands."""

    path: Path
    unopened: str = ""
    """Why nothing of it can be read."""
    round: int = 0
    """Of the last save."""
    num_states: int = 0
    """Of all clients and rounds, those that can be read."""
    unreadable: tuple[Unreadable, ...] = ()
    findings: tuple[str, ...] = ()
    """What SQLite has to say of the file's order; not all of it need touch a state."""

    @property
    def is_whole(self) -> bool:
        return not (self.unopened or self.unreadable or self.findings)


class Row(NamedTuple):
    """A state as it is in the file, or why it cannot be read."""

    client: int
    round: int | None
    content: tuple[int, bytes] | None
    why: str = ""


def check(path: Path) -> Damage:
    """Reads all of it."""
    try:
        file = StateFile(path, read_only=True)
    except RunFolderError as error:
        return Damage(path=path, unopened=str(error))
    if not file.is_there:
        return Damage(path=path)
    try:
        with file.reading() as connection:
            return found(path, connection)
    finally:
        file.close()


def found(path: Path, connection: sqlite3.Connection) -> Damage:
    unreadable, num_states = list[Unreadable](), 0
    for row in all_rows(connection):
        num_states += row.content is not None
        if row.content is None:
            unreadable.append(Unreadable(row.client, row.round, row.why))
    return Damage(
        path=path,
        round=noted(connection, SAVED) or 0,
        num_states=num_states,
        unreadable=tuple(unreadable),
        findings=findings(connection),
    )


def rescued(path: Path, into: Path, *, as_of: int | None = None) -> list[int]:
    """A new file with what each client held after a round (the last save's, if none is told), as far as it can be read.

    Returns the clients whose state cannot be read: in the new file they have none, as if they had never been visited.
    A state that is gone without a trace from both table and index cannot be told of, and an older one would be taken.
    """
    if not path.exists():
        raise RunFolderError(f"There is no {path}.")
    if into.exists():
        raise RunFolderError(f"{into} is there already. Remove it, or choose another name.")
    source, target = StateFile(path, read_only=True), StateFile(into)
    try:
        with source.reading() as connection:
            target.layout = Layout(page_bytes=connection.execute("PRAGMA page_size").fetchone()[0])
            round = noted(connection, SAVED) if as_of is None else as_of
            if round is None:
                raise RunFolderError(f"{path} does not tell any more after which round it was saved. Say as_of.")
            lost = copied(connection, target, round)
        target.commit()
    except BaseException:
        target.close()
        into.unlink(missing_ok=True)
        raise
    finally:
        source.close()
        target.close()
    return lost


def copied(source: sqlite3.Connection, target: StateFile, round: int) -> list[int]:
    lost, highest = list[int](), highest_client(source)
    with target.writing() as connection:
        for row in needed(all_rows(source), round):
            if row.content is None or row.round is None:
                lost.append(row.client)
            else:
                connection.execute(INSERT, (key(row.client, row.round), *row.content))
        notes = ((SAVED, round), (KEPT_FROM, round), (HIGHEST, highest))
        connection.executemany("INSERT INTO meta VALUES (?, ?)", notes)
    return lost


def needed(rows: Iterator[Row], round: int) -> Iterator[Row]:
    """Each client's last row up to a round; one of an unknown round may be it."""
    last: Row | None = None
    for row in rows:
        if last is not None and last.client != row.client:
            yield last
            last = None
        if row.round is None or row.round <= round:
            last = row
    if last is not None:
        yield last


def all_rows(connection: sqlite3.Connection) -> Iterator[Row]:
    """By client and round, a few in memory at a time."""
    highest = highest_client(connection)
    first, at_once = 0, CLIENTS_AT_ONCE
    while first <= highest:
        found = 0
        for client, round in versions_of(connection, first, min(first + at_once - 1, highest)):
            found += 1
            yield row_of(connection, client, round)
        first, at_once = first + at_once, CLIENTS_AT_ONCE if found else 2 * at_once  # a damaged number may be huge


def versions_of(connection: sqlite3.Connection, first: int, last: int) -> Iterator[tuple[int, int | None]]:
    """What rows some clients have; those of a damaged page are closed in on by halves."""
    lists = [ids for ids in (ids_by(way, connection, first, last) for way in WAYS) if ids is not None]
    if lists:
        yield from ((id >> ROUND_BITS, id & LAST_ROUND) for id in sorted(set().union(*lists)))
    elif first == last:
        yield first, None
    else:
        middle = (first + last) // 2
        yield from versions_of(connection, first, middle)
        yield from versions_of(connection, middle + 1, last)


def ids_by(way: str, connection: sqlite3.Connection, first: int, last: int) -> list[int] | None:
    """As one of the lists has them; None where it cannot be read."""
    query = f"SELECT id FROM states {way} WHERE id BETWEEN ? AND ?"
    with overlooking_damage():
        ids = [row[0] for row in connection.execute(query, (key(first, 0), key(last, LAST_ROUND)))]
        return ids if all(type(id) is int for id in ids) else None
    return None


def row_of(connection: sqlite3.Connection, client: int, round: int | None) -> Row:
    if round is None:
        return Row(client, None, None, "its page is damaged")
    id, why = key(client, round), "its page is damaged"
    with overlooking_damage():
        row = connection.execute("SELECT id, checksum, state FROM states NOT INDEXED WHERE id = ?", (id,)).fetchone()
        try:
            decoded(id, *(row or (None, None, None)))
            return Row(client, round, row[1:])
        except ValueError as error:
            why = str(error)
    return Row(client, round, None, why)


def highest_client(connection: sqlite3.Connection) -> int:
    """The last one there may be, by all that can tell."""
    told: list[int] = [min(noted(connection, HIGHEST) or 0, MOST_CLIENTS)]
    for way in WAYS:
        with overlooking_damage():
            found = connection.execute(f"SELECT max(id) FROM states {way}").fetchone()[0]
            told += [found >> ROUND_BITS] if type(found) is int else []
    return max(told)


def noted(connection: sqlite3.Connection, name: str) -> int | None:
    """What the file says of itself, if it does."""
    with overlooking_damage():
        row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row[0] if row and isinstance(row[0], int) else None
    return None


def findings(connection: sqlite3.Connection) -> tuple[str, ...]:
    try:
        lines = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({MOST_FINDINGS})")]
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        return (str(error),)
    return () if lines == ["ok"] else tuple(lines)


@contextmanager
def overlooking_damage() -> Iterator[None]:
    """Other errors, such as a file in use, are raised."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
    except UnicodeDecodeError:  # SQLite quotes what it has read
        pass
