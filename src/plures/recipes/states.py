"""What clients keep, in memory or on disk, and how it is read again from the folder of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from plures.core.roles import Store
from plures.core.types import Params
from plures.recipes.folder import RunFolder
from plures.report import records
from plures.stores.disk import DiskStore
from plures.stores.memory import MemoryStore

if TYPE_CHECKING:
    from plures.recipes.checkpointing import CheckpointPlan
    from plures.recipes.resuming import Resumed

MOST_PORTABLE_BYTES = 2**30
"""Clients that keep more than that in all have it in clients.sqlite alone: a file of tensors is made in memory."""


class StoredStates(Mapping[int, Params]):
    """What each client keeps, read when it is asked for."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __getitem__(self, client: int) -> Params:
        state = self.store.get(client)
        if state is None:
            raise KeyError(client)
        return state

    def __iter__(self) -> Iterator[int]:
        return self.store.clients()

    def __len__(self) -> int:
        return sum(1 for _ in self.store.clients())


def fits_in_memory(store: Store) -> bool:
    """Whether everything that clients keep can be one file of tensors."""
    return not isinstance(store, DiskStore) or store.stored_bytes() <= MOST_PORTABLE_BYTES


def open_store(folder: RunFolder | None, plan: CheckpointPlan, device: torch.device, resumed: Resumed | None) -> Store:
    """On disk where the run has a folder, as it was at the checkpoint; else in memory."""
    if folder is None:
        return MemoryStore()
    path = folder.path / records.STATES
    if resumed is not None and not resumed.manifest.has_states:  # what is there came after the checkpoint
        for left in folder.path.glob(f"{records.STATES}*"):
            left.unlink()
    store = DiskStore(path, cache_bytes=plan.cache_mb * 2**20, device=device)
    if resumed is not None:
        store.roll_back(resumed.round)
    return store


def retired(store: Store, round: int) -> Store:
    """What a run that has ended leaves to whoever asks for models: in memory, if it fits."""
    if not isinstance(store, DiskStore):
        return store
    if not fits_in_memory(store):
        store.save(round)
        store.close()
        return read_only_store(store.path.parent, round, store.device)
    memory = MemoryStore()
    memory.commit(round, dict(StoredStates(store)))
    store.close()
    return memory


def closed(store: Store) -> None:
    """Whatever became of it."""
    if isinstance(store, DiskStore):
        store.close()


def read_only_store(folder: Path, round: int, device: torch.device | str = "cpu") -> DiskStore:
    """The store of a run that has ended after some round."""
    return DiskStore(folder / records.STATES, device=device, read_only=True, as_of=round)
