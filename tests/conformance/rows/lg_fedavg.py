"""The row of lg_fedavg."""

from __future__ import annotations

from plures.local import adam
from plures.server.weights import uniform
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, SHORT, Entry

ENTRY = Entry(
    variants={
        "plain": {"budget": MINI},
        "momentum": {"budget": MINI, "lr": MOMENTUM, "clip_norm": 0.5, "weight": uniform},
        "server adam": {"budget": MINI, "personal": "body.weight", "server": adam(0.05)},
        "stateless": {"budget": MINI, "stateful": False},
        "normed, personal": NORMED,
    },
    still={"lr": 0.0},
    unkeyed={"budget": FULL_STEPS},
    golden={"plain": {"budget": SHORT}},
)
