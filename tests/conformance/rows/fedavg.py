"""The row of fedavg."""

from __future__ import annotations

from plures.local import adam, exponential
from plures.server.weights import uniform
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, SHORT, Entry

ENTRY = Entry(
    variants={
        "plain": {"budget": MINI},
        "momentum": {"budget": MINI, "lr": MOMENTUM, "clip_norm": 0.5, "weight": uniform},
        "server adam": {"budget": MINI, "lr": exponential(0.2, 0.5), "server": adam(0.05)},
        "normed, shared": {**NORMED, "buffers": "shared"},
        "normed, personal": {**NORMED, "buffers": "personal"},
        "normed, reset": {**NORMED, "buffers": "reset"},
    },
    still={"lr": 0.0},
    unkeyed={"budget": FULL_STEPS},
    golden={"plain": {"budget": SHORT}},
)
