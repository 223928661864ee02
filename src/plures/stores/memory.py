"""Client state in memory: only clients that were visited take any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from plures.core.types import Params

NOBODY: Mapping[int, Params] = MappingProxyType({})


class MemoryStore:
    """Keeps each client's own part between rounds."""

    def __init__(self) -> None:
        self._states: dict[int, Params] = {}
        self._staged: dict[int, Params] = {}
        self._under_way: int | None = None
        self.round = 0

    def get(self, client: int) -> Params | None:
        return self._states.get(client)

    def stage(self, round: int, states: Mapping[int, Params]) -> None:
        """What clients will keep, of a round that is under way; nothing of it is in force before its commit."""
        expect_round(round, self._under_way)
        self._staged.update(states)
        self._under_way = round

    def commit(self, round: int, states: Mapping[int, Params] = NOBODY) -> None:
        """These, and what was staged, are in force."""
        expect_round(round, self._under_way)
        self._states.update({**self._staged, **states})
        self.discard()
        self.round = round

    def discard(self) -> None:
        """Forget what was staged."""
        self._staged, self._under_way = {}, None

    def clients(self) -> Iterator[int]:
        """Clients with a state, in order."""
        yield from sorted(self._states)


def expect_round(round: int, under_way: int | None) -> None:
    """Refuse states of another round than is under way."""
    if under_way not in (None, round):
        raise ValueError(f"States of round {under_way} are staged: commit or discard them before round {round}.")
