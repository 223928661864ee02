"""States held in memory, with how much they take and which was used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from plures.core.types import Params, sum_bytes

TENSOR_BYTES = 1024
"""What a tensor takes besides its values: the object, its entry in the dict, what the allocator rounds up."""


class Kept(NamedTuple):
    """What a client held after a round."""

    round: int
    state: Params
    num_bytes: int


def kept(round: int, state: Params) -> Kept:
    return Kept(round, state, sum_bytes(state.values()) + TENSOR_BYTES * (1 + len(state)))


class Shelf:
    """States of clients; the one used last stands last."""

    def __init__(self) -> None:
        self._kept = OrderedDict[int, Kept]()
        self.num_bytes = 0

    def put(self, client: int, one: Kept) -> None:
        self.take(client)
        self._kept[client] = one
        self.num_bytes += one.num_bytes

    def get(self, client: int) -> Kept | None:
        if client in self._kept:
            self._kept.move_to_end(client)
        return self._kept.get(client)

    def take(self, client: int) -> Kept | None:
        one = self._kept.pop(client, None)
        self.num_bytes -= one.num_bytes if one else 0
        return one

    def drop_oldest(self) -> None:
        _, one = self._kept.popitem(last=False)
        self.num_bytes -= one.num_bytes

    def clear(self) -> None:
        self._kept.clear()
        self.num_bytes = 0

    def clients(self) -> list[int]:
        """In order."""
        return sorted(self._kept)

    def items(self) -> Iterable[tuple[int, Kept]]:
        """The one used last is last."""
        return self._kept.items()

    def __len__(self) -> int:
        return len(self._kept)
