"""Clients' data kept ready up to a number of bytes, the longest unused dropped first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from plures.data.client import ClientData


class ClientCache:
    """Never holds more than `limit_bytes`, however many clients there are."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._clients: OrderedDict[int, ClientData] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._clients)

    def __reduce__(self) -> tuple[type[ClientCache], tuple[int]]:
        """A copy in another process starts empty."""
        return ClientCache, (self.limit_bytes,)

    def get(self, index: int, load: Callable[[int], ClientData]) -> ClientData:
        """The client's data, loaded if it is not held."""
        with self._lock:
            if index in self._clients:
                self._clients.move_to_end(index)
                return self._clients[index]
        # Loading is outside the lock, so that threads can load different clients at once.
        data = load(index)
        with self._lock:
            self._keep(index, data)
        return data

    def _keep(self, index: int, data: ClientData) -> None:
        if index in self._clients or data.num_bytes > self.limit_bytes:
            return
        self._clients[index] = data
        self.held_bytes += data.num_bytes
        while self.held_bytes > self.limit_bytes:
            _, dropped = self._clients.popitem(last=False)
            self.held_bytes -= dropped.num_bytes
