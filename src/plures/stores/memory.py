"""Client state in memory: only clients that were visited take any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from plures.core.types import Params


class MemoryStore:
    """Keeps each client's own part between rounds."""

    def __init__(self) -> None:
        self._states: dict[int, Params] = {}
        self.round = 0

    def get(self, client: int) -> Params | None:
        return self._states.get(client)

    def commit(self, round: int, states: Mapping[int, Params]) -> None:
        self._states.update(states)
        self.round = round

    def clients(self) -> Iterator[int]:
        """Clients with a state, in order."""
        yield from sorted(self._states)
