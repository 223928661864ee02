"""The shared part for newcomers: nodes that ask for it, and have no part in the run."""

from __future__ import annotations

import time

from plures.core.types import Params
from plures.core.wire import Message, Parcel
from plures.deploy.asking import Asking
from plures.deploy.messages import sealed
from plures.deploy.transport import Letter
from plures.wire import encode

GIVE_SECONDS = 60.0


def give(asking: Asking, shared: Params, round: int) -> int:
    """Send the shared part to every newcomer that is there, and wait for none of them; how many there are."""
    newcomers = sorted(asking.roster.newcomers)
    if newcomers:
        letter = sealed(asking.order("give", 0, round), encode(Message(Parcel({}), shared)))
        asking.desk.forget(asking.desk.send([Letter(node, letter, GIVE_SECONDS) for node in newcomers]))
        asking.roster.newcomers.clear()
        asking.tell(f"{len(newcomers)} newcomers are given the shared part of round {round}")
    return len(newcomers)


def give_for(asking: Asking, shared: Params, round: int, seconds: float) -> int:
    """To all that come in so many seconds; how many came."""
    until, given = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        asking.roster.refresh()
        given += give(asking, shared, round)
        time.sleep(asking.desk.poll_seconds)
    asking.desk.collect()
    return given
