"""What one client knows when it begins, while it works in a round, and what its work has come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from plures.core.networks import Network
from plures.core.seeds import generator
from plures.core.types import Batch, Facts, Params
from plures.core.wire import NOTHING_SENT, Parcel, Sent


@dataclass(frozen=True, kw_only=True)
class Visit:
    """What one client knows while it works in one round."""

    client: int
    round: int
    seed: int
    data: Batch
    facts: Facts
    received: Params
    """The shared part as downloaded."""
    state: Params
    """What the client kept from its last visit, or its initial state."""
    begin: Callable[[], Params] = dict
    """Makes `initial`, for those who ask."""
    capacity: float = 1.0
    """What the client can afford, in the unit of the method's `Capacity`."""
    down: Sent = NOTHING_SENT
    """What the download took."""
    network: Network | None = None
    """The client's network as it was before anybody trained it."""
    rounds: int | None = None
    """How many rounds the run has, where that is known."""
    name: str = ""
    """The client's name, for messages."""
    statistics: frozenset[str] = frozenset()
    """Names of running statistics, which no penalty counts."""
    kills_worker: bool = False
    """Whether the process that does the work dies, once: a fault, to see what an engine makes of it."""

    @cached_property
    def initial(self) -> Params:
        """What the client would hold if this were its first visit."""
        return self.begin()


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What a client's state before its first visit may depend on."""

    state: Params
    """The common initial state of all clients with this network."""
    received: Params
    """The shared part as the client would download it now."""
    network: Network
    capacity: float
    seed: int
    client: int

    def own_draws(self) -> torch.Generator:
        """A generator of this client's."""
        return generator(self.seed, "start", self.client)


def common_draws(seed: int) -> torch.Generator:
    """A generator that draws the same for the start of every client."""
    return generator(seed, "common start")


class Trained(NamedTuple):
    """What a client may send of what its work has come to; nothing that the server is not to know."""

    shared: Params
    """The shared part after training."""
    observed: Params
    """Gradients that phases have kept."""
    known: Params
    """What the client keeps and the server is told of: its masks from now on."""


Upload = Parcel
"""What one client sends: values, and how much it held of each coordinate (None: all of it)."""
