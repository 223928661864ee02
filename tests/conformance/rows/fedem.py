"""The row of fedem."""

from __future__ import annotations

from plures.local import adam, exponential
from plures.server.weights import uniform
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, SHORT, Entry

ENTRY = Entry(
    variants={
        "plain": {"budget": MINI},
        "momentum": {"budget": MINI, "lr": MOMENTUM, "weight": uniform, "clip_norm": 0.2},
        "server adam": {"budget": MINI, "lr": exponential(0.2, 0.5), "components": 2, "server": adam(0.05)},
        "stateless": {"budget": MINI, "stateful": False},
        "normed, shared": {**NORMED, "buffers": "shared"},
        "normed, personal": {**NORMED, "buffers": "personal"},
        "normed, reset": {**NORMED, "buffers": "reset"},
    },
    # Shares of components follow the data at any rate; one component has the whole share.
    still={"lr": 0.0, "components": 1},
    unkeyed={"budget": FULL_STEPS},
    golden={"plain": {"budget": SHORT}, "normed, personal": {"budget": SHORT, "buffers": "personal", "components": 2}},
)
