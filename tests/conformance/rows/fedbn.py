"""The row of fedbn: every variant needs a network with norms."""

from __future__ import annotations

from plures.local import adam, epochs
from plures.server.weights import uniform
from tests.conformance.entry import FULL_STEPS, MOMENTUM, NORMED, SHORT, Entry

FIVES = epochs(2, batch=5)
"""Leaves no example alone of clients of 3, 5, 7, 9 and 4."""

ENTRY = Entry(
    variants={
        "normed": NORMED,
        "normed, mini-batches": {"budget": FIVES, "server": adam(0.05)},
        "normed, momentum": {"budget": FULL_STEPS, "lr": MOMENTUM, "clip_norm": 0.5, "weight": uniform},
        "normed, stateless": {"budget": FIVES, "stateful": False},
    },
    still={"lr": 0.0},
    unkeyed={"budget": FULL_STEPS},
    golden={"normed": {"budget": SHORT}},
)
