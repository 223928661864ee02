"""What a row of the conformance table says of a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plures.local import epochs, sgd, steps

MINI = epochs(2, batch=3)
"""With clients of 3, 5, 7, 9 and 4 examples, and none left over but for the last batch of 7 and of 4."""
SHORT = epochs(1, batch=16)
"""For golden curves on digits."""
FULL_STEPS = steps(2)
MOMENTUM = sgd(0.1, momentum=0.9, weight_decay=0.01)
NORMED = {"budget": FULL_STEPS, "lr": 0.1}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the tests need to know of a method."""

    variants: Mapping[str, Mapping[str, Any]]
    """Options by a short name; one that begins with "normed" runs on a network with running statistics.

    No batch of size 1 may come up there, for it has no statistics."""
    still: Mapping[str, Any]
    """Options that set every rate to zero."""
    unkeyed: Mapping[str, Any] = field(default_factory=dict)
    """Options with which no draw depends on a client's number: full batches, a common start."""
    without_rates: tuple[str, ...] = ()
    """Variants that move whatever the rates are."""
    large_clients: tuple[str, ...] = ()
    """Variants for clients that no head separates: on others Newton's steps go far, and roundings with them."""
    at_server: tuple[str, ...] = ()
    """Parts that the server keeps for itself: held with the shared part, and never sent."""
    numbered: bool = False
    """Whether the server knows clients by their numbers, so that a change of these is one of the run."""
    loose: tuple[str, ...] = ()
    """Patterns of names without effect, such as that of a bias before a batch norm, whose gradient is roundings alone.

    They need not move, and are compared absolutely: what is zero but for roundings has no relative error."""
    golden: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of the golden curves, by a short name."""
    newcomer_moves: tuple[str, ...] = ()
    """Patterns of the names that a newcomer moves, with the method's defaults; tests/methods has most of them."""
