"""Client state in a file: bounded memory, and whole rounds whatever happens."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

import torch

from plures.core.errors import RunFolderError
from plures.core.types import Params
from plures.stores.blobs import owned
from plures.stores.cache import Shelf, kept
from plures.stores.memory import NOBODY, expect_round
from plures.stores.state_file import Layout, StateFile
from plures.stores.versions import KEPT_FROM, SAVED, Version, Versions

CACHE_BYTES = 256 * 2**20


class DiskStore:
    """Keeps each client's own part between rounds; what lasts is what `save` has saved.

    States are held in memory up to `cache_bytes`; what is more is written at once, but only a save makes it last.
    Without states there is no file. A reader may ask for an earlier round that is still kept with `as_of`.
    """

    def __init__(
        self,
        path: Path,
        *,
        cache_bytes: int = CACHE_BYTES,
        device: torch.device | str = "cpu",
        read_only: bool = False,
        as_of: int | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.path, self.cache_bytes, self.device = path, cache_bytes, torch.device(device)
        self._staged, self._dirty, self._clean = Shelf(), Shelf(), Shelf()
        self._spilled: set[int] = set()
        self._under_way: int | None = None
        self._file = StateFile(path, read_only=read_only, layout=layout)
        try:
            self._versions = Versions(self._file)
            self._saved = self._versions.noted(SAVED)
            self.round = self._saved or 0
            if as_of is not None:
                self._look_back(as_of)
        except BaseException:
            self._file.close()
            raise

    def get(self, client: int) -> Params | None:
        """As of the last committed round."""
        found = self._dirty.get(client) or self._clean.get(client)
        state = found.state if found else self._fetched(client)
        if state is None or self.device.type == "cpu":
            return state
        return {name: value.to(self.device) for name, value in state.items()}

    def stage(self, round: int, states: Mapping[int, Params]) -> None:
        """What clients will keep, of a round that is under way; nothing of it is in force before its commit."""
        expect_round(round, self._under_way)
        if round <= self.round:
            raise ValueError(f"Round {self.round} is committed; no states of round {round} can be staged.")
        self._refuse_reader()
        self._under_way = round
        for client, state in states.items():
            self._staged.put(client, kept(round, owned(state)))
        self._make_room()

    def commit(self, round: int, states: Mapping[int, Params] = NOBODY) -> None:
        """These, and what was staged, are in force."""
        expect_round(round, self._under_way)
        if round < self.round or (states and round == self._saved):
            raise ValueError(f"Round {self.round} is committed; no states of round {round} can be.")
        self._refuse_reader()
        new = {client: kept(round, owned(state)) for client, state in states.items()}
        self.round = round  # first: a commit that is cut off leaves a round that nobody will ask to save
        new = {**dict(self._staged.items()), **new}
        for client in [*self._spilled, *new]:
            self._dirty.take(client)
            self._clean.take(client)
        for client, one in new.items():
            self._dirty.put(client, one)
        if self._spilled:
            self._versions.in_force(dict.fromkeys(self._spilled, round))
        self._forget_staged()
        self._make_room()

    def discard(self) -> None:
        """Forget what was staged."""
        if self._spilled and self._under_way is not None and not self._file.is_broken:
            self._versions.delete(self._under_way, self._spilled)
        self._forget_staged()

    def clients(self) -> Iterator[int]:
        """Clients with a state, in order."""
        last = -1
        for client in heapq.merge(self._dirty.clients(), self._versions.clients(self.round)):
            if client != last:
                yield client
            last = client
        if self._file.read_only:
            self._expect_kept(self.round)

    def save(self, round: int) -> None:
        """What is committed lasts, in one transaction: a crash before its end leaves what the save before left."""
        if round != self.round or self._under_way is not None:
            under_way = "" if self._under_way is None else f", and round {self._under_way} is under way"
            raise ValueError(f"Round {round} cannot be saved: the store is at round {self.round}{under_way}.")
        self._refuse_reader()
        if self._file.is_there or len(self._dirty):
            self._write_dirty()
            self._versions.save(round)
            self._saved = round

    def forget_before(self, round: int) -> None:
        """Nobody will go back further than to this round: what only earlier ones need is deleted."""
        if self._file.is_there:
            self._versions.forget_before(round)

    def roll_back(self, round: int) -> None:
        """Go back to a round that was saved; what came after it is forgotten, for good."""
        self._expect_kept(round)
        for shelf in (self._staged, self._dirty, self._clean):
            shelf.clear()
        self._forget_staged()
        if self._file.is_there:
            self._versions.roll_back(round)
            self._saved = round
        self.round = round

    def stored_bytes(self) -> int:
        """Of what is committed, in the file and on its way there; older versions count while they are kept."""
        return self._versions.used_bytes() + self._dirty.num_bytes

    def close(self) -> None:
        """What was not saved is not kept."""
        self._file.close()

    def __enter__(self) -> DiskStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _fetched(self, client: int) -> Params | None:
        state = self._versions.latest(client, self.round)
        if self._file.read_only:
            self._expect_kept(self.round)  # whoever writes may have gone on since
        if state is not None:
            self._clean.put(client, kept(self.round, state))
            self._drop_clean()
        return state

    def _look_back(self, round: int) -> None:
        if not self._file.read_only:
            raise ValueError("A store that can be written to is as of its last save; use roll_back to go back.")
        self._expect_kept(round)
        self.round = round

    def _expect_kept(self, round: int) -> None:
        """A round that was saved, and whose states are all there still."""
        if not self._file.is_there or self._saved is None:  # nobody kept anything when a round was last saved
            return
        saved, first = self._saved, self._versions.noted(KEPT_FROM) or 0
        if round > saved:
            raise RunFolderError(f"{self.path} was saved after round {saved}: it has no states of round {round}.")
        if round < first:
            raise RunFolderError(f"{self.path} has states from round {first} on; those of round {round} are gone.")

    def _refuse_reader(self) -> None:
        if self._file.read_only:
            raise RunFolderError(f"{self.path} was opened for reading; nothing can be written to it.")

    def _make_room(self) -> None:
        """First what can be read again, then what is in force, at last what is not."""
        self._drop_clean()
        if self._too_much():
            self._write_dirty()
            self._drop_clean()
        if self._too_much():
            self._spill()

    def _too_much(self) -> bool:
        return self._staged.num_bytes + self._dirty.num_bytes + self._clean.num_bytes > self.cache_bytes

    def _drop_clean(self) -> None:
        while len(self._clean) and self._too_much():
            self._clean.drop_oldest()

    def _write_dirty(self) -> None:
        if not len(self._dirty):
            return
        self._file.typical_bytes = self._dirty.num_bytes // len(self._dirty)
        self._versions.in_force({client: one.round for client, one in self._dirty.items()})
        self._versions.insert(Version(client, *one[:2]) for client, one in sorted(self._dirty.items()))
        for client, one in self._dirty.items():
            self._clean.put(client, one)
        self._dirty.clear()

    def _spill(self) -> None:
        """States of the round under way, into rows that `get` does not look at yet."""
        self._file.typical_bytes = self._staged.num_bytes // len(self._staged)
        self._spilled.update(client for client, _ in self._staged.items())  # first, so that they can be discarded
        self._versions.insert(Version(client, *one[:2]) for client, one in sorted(self._staged.items()))
        self._staged.clear()

    def _forget_staged(self) -> None:
        self._staged.clear()
        self._spilled.clear()
        self._under_way = None
