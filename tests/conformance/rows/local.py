"""The row of local."""

from __future__ import annotations

from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, SHORT, Entry

ENTRY = Entry(
    variants={
        "plain": {"budget": MINI},
        "momentum": {"budget": MINI, "lr": MOMENTUM, "clip_norm": 0.5},
        "stateless": {"budget": MINI, "stateful": False},
        "normed": NORMED,
    },
    still={"lr": 0.0},
    unkeyed={"budget": FULL_STEPS},
    golden={"plain": {"budget": SHORT}},
)
