"""Looks at what clients keep, without a change to the file, and saves what can be read of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from plures.core.errors import RunFolderError
from plures.core.types import Params
from plures.recipes.doctor_repairs import changing, keep_original, put_in_place, removed
from plures.recipes.states import read_only_store
from plures.report import records
from plures.stores.disk import DiskStore
from plures.stores.rescue import Damage, all_rows, check, needed, rescued
from plures.stores.state_file import StateFile
from plures.stores.versions import Version, Versions

JOURNAL = f"{records.STATES}-journal"
Lost = tuple[int, ...] | None
"""Clients whose state cannot be read; None: nobody's can, or not as of that round."""


@dataclass(frozen=True, kw_only=True)
class States:
    """How clients.sqlite stands."""

    damage: Damage | None = None
    """None: there is no such file."""
    was_cut: bool = False
    """A process was killed while it wrote."""
    lost: Mapping[int, Lost] = field(default_factory=dict)
    """As of each round that was asked for."""

    def serve(self, round: int) -> bool:
        """Whether everybody's state can be read as of a round."""
        return self.lost.get(round) == ()


def look_at_states(folder: Path, rounds: Sequence[int]) -> States:
    """All of it is read; as of these rounds it is told who is lost."""
    if not (folder / records.STATES).is_file():
        return States()
    with undisturbed(folder) as place:
        damage = damage_of(place / records.STATES)
        lost = {round: lost_at(place, damage, round) for round in dict.fromkeys(rounds)}
    return States(damage=damage, was_cut=(folder / JOURNAL).exists(), lost=lost)


@contextmanager
def undisturbed(folder: Path) -> Iterator[Path]:
    """Where the file can be opened: SQLite takes back at once what a killed process has left, so in a copy then."""
    if not (folder / JOURNAL).exists():
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="plures-doctor-") as copy, changing(folder / records.STATES):
        for name in (records.STATES, JOURNAL):
            shutil.copy2(folder / name, copy)
        yield Path(copy)


def damage_of(path: Path) -> Damage:
    try:
        file = StateFile(path, read_only=True)
        file.close()
        return check(path) if file.is_there else Damage(path=path, unopened=f"{path} is empty.")
    except RunFolderError as error:
        return Damage(path=path, unopened=str(error))


def lost_at(folder: Path, damage: Damage, round: int) -> Lost:
    """Who cannot be read as of a round."""
    if damage.unopened or (damage.round and round > damage.round):
        return None
    try:
        if damage.is_whole:
            read_only_store(folder, round).close()
            return ()
        file = StateFile(folder / records.STATES, read_only=True)
        try:
            with file.reading() as connection:
                return tuple(row.client for row in needed(all_rows(connection), round) if row.content is None)
        finally:
            file.close()
    except RunFolderError:
        return None


def take_back(folder: Path) -> None:
    """What a killed process has left half written; that is what SQLite does when a file is opened."""
    DiskStore(folder / records.STATES).close()


def rescue(
    folder: Path,
    round: int,
    *,
    may_lose: Lost,
    spare: Mapping[int, Params] | None = None,
    look_at: Callable[[Path], None] | None = None,
) -> tuple[int, ...]:
    """A new file of what each client held after a round, where it can be read, or else as `spare` has it.

    Those of whom neither has anything begin anew and are returned; they are among those that may be lost, or the old
    file stays. `look_at` sees the new one first.
    """
    path = folder / records.STATES
    fresh, spare = path.with_name(f".{path.name}.partial"), {} if spare is None else spare
    removed(fresh, fresh.with_name(f"{fresh.name}-journal"))
    unread = None if may_lose is None else rescued(path, fresh, as_of=round)
    lost = tuple(client for client in unread or () if client not in spare)
    if set(lost) - set(may_lose or ()):
        removed(fresh)
        raise RunFolderError(f"More of {path} is damaged than a moment ago. Is the disk all right?")
    add_states(
        fresh, round, spare if unread is None else {client: spare[client] for client in unread if client in spare}
    )
    if look_at is not None:
        look_at(fresh)
    part_from_journal(folder)
    put_in_place(fresh, path)
    return lost


def add_states(path: Path, round: int, states: Mapping[int, Params]) -> None:
    file = StateFile(path)
    try:
        versions = Versions(file)
        versions.in_force(dict.fromkeys(states, round))
        versions.insert(Version(client, round, states[client]) for client in sorted(states))
        versions.save(round)
    finally:
        file.close()


def part_from_journal(folder: Path) -> None:
    """What a killed process has left belongs to the old file: SQLite would put it into the new one."""
    journal = folder / JOURNAL
    if journal.exists():
        with changing(journal):
            kept = keep_original(folder / records.STATES)
            journal.replace(kept.with_name(f"{kept.name}-journal"))
