"""The row of fedprox."""

from __future__ import annotations

from plures.local import adam
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, SHORT, Entry

ENTRY = Entry(
    variants={
        "plain": {"budget": MINI, "mu": 0.5},
        "momentum": {"budget": MINI, "mu": 0.5, "lr": MOMENTUM, "clip_norm": 0.5},
        "server adam": {"budget": MINI, "mu": 0.5, "server": adam(0.05)},
        "normed, shared": {**NORMED, "mu": 0.5, "buffers": "shared"},
        "normed, personal": {**NORMED, "mu": 0.5, "buffers": "personal"},
        "normed, reset": {**NORMED, "mu": 0.5, "buffers": "reset"},
    },
    still={"lr": 0.0},
    unkeyed={"budget": FULL_STEPS},
    golden={"plain": {"budget": SHORT, "mu": 0.5}},
)
