"""What a node keeps between orders: its client's state of each round, and its last answer."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save

from plures.core.errors import RunFolderError
from plures.core.types import Params
from plures.report.writing import replace_whole
from plures.stores.disk import DiskStore

STATES, LAST, REPLY = "state.sqlite", "last.json", "reply.bin"
SHARED, FINISHED = "shared.safetensors", "finished.json"
ONLY = 0
"""A node has one client; whatever number that has in a run."""
ROUNDS_KEPT = 10
"""A server may go back so many rounds that have counted."""
MOST_RUNS = 64
"""A server that begins runs without end must not fill the disk."""


class BrokenState(RunFolderError):
    """What a node keeps is not what the server counts on."""


class RunStates:
    """What a node keeps of one run, in a folder that only its operator can read."""

    def __init__(self, folder: Path, run: str) -> None:
        self.path = folder / run
        if not self.path.exists():
            check_room(folder)
        private_folder(folder)
        private_folder(self.path)

    def read(self, counted: int | None) -> Params | None:
        """The state of the last round that counted, before any: none; nothing is changed."""
        if counted is None:
            return None
        if not (self.path / STATES).exists():
            raise BrokenState(
                f"{self.path} has no state of round {counted}, which the server counts on: it was lost, or is another "
                "node's. Bring back the folder; without it this node cannot go on in this run."
            )
        with DiskStore(self.path / STATES, read_only=True, as_of=counted) as store:
            state = store.get(ONLY)
        if state is None:
            raise BrokenState(f"{self.path} has no state of round {counted}, which the server counts on.")
        return state

    def keep(self, round: int, state: Params, counted: int | None) -> None:
        """The state after a round, which counts when the server says so; others that did not count never were."""
        with DiskStore(self.path / STATES, cache_bytes=0) as store:
            store.roll_back(counted or 0)
            store.commit(round, {ONLY: state})
            store.save(round)
            if counted is not None and counted > ROUNDS_KEPT:
                store.forget_before(counted - ROUNDS_KEPT)

    def answered(self, order: bytes) -> bytes | None:
        """The answer to an order that was answered before, if it was the last."""
        last = self.last()
        path = self.path / REPLY
        if last.get("order") != digest(order) or not path.is_file():
            return None
        reply = path.read_bytes()
        return reply if digest(reply) == last.get("reply") else None

    def note(self, when: tuple[int, int], order: bytes, reply: bytes) -> None:
        """First the answer, then what it was to: a crash between the two leaves an order that is done again."""
        replace_whole(self.path / REPLY, reply)
        told = {"when": list(when), "order": digest(order), "reply": digest(reply)}
        replace_whole(self.path / LAST, json.dumps(told).encode())

    def finish(self, shared: Params, told: Mapping[str, int | None]) -> None:
        """The shared part that the run has ended with: with the state, the client's whole model."""
        replace_whole(self.path / SHARED, save({name: value.cpu().contiguous() for name, value in shared.items()}))
        replace_whole(self.path / FINISHED, json.dumps(dict(told)).encode())

    def is_past(self, when: tuple[int, int]) -> bool:
        """Whether an order came after a later one: it changes nothing any more."""
        return tuple(self.last().get("when", (0, 0))) > when

    def last(self) -> dict[str, Any]:
        path = self.path / LAST
        if not path.is_file():
            return {}
        try:
            told = json.loads(path.read_bytes())
        except ValueError as error:
            raise BrokenState(f"{path} cannot be read: {error}. Bring it back from a copy.") from error
        if not isinstance(told, dict):
            raise BrokenState(f"{path} is not what a node has written. Bring it back from a copy.")
        return told


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def private_folder(folder: Path) -> None:
    """Made for the operator alone; one that others may read is refused rather than changed behind their back."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = folder.stat().st_mode & 0o777
    if os.name == "posix" and mode & 0o077:
        raise BrokenState(f"{folder} can be read by others (mode {mode:o}): 'chmod 700 {folder}' first.")


def check_room(folder: Path) -> None:
    runs = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    if len(runs) >= MOST_RUNS:
        raise BrokenState(
            f"{folder} has the states of {len(runs)} runs, and the server begins another. Move those of runs that have "
            "ended elsewhere."
        )
