"""The row of fedrep."""

from __future__ import annotations

from plures.local import adam, epochs
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, SHORT, Entry

NORMED_HEAD = {**NORMED, "head_budget": FULL_STEPS}

ENTRY = Entry(
    variants={
        "plain": {"budget": epochs(1, batch=3), "head_budget": MINI, "head_lr": 0.2},
        "momentum": {"budget": MINI, "head_budget": MINI, "lr": MOMENTUM, "clip_norm": 0.5, "start": "uniform"},
        "server adam": {"budget": MINI, "head_budget": MINI, "server": adam(0.05)},
        "stateless": {"budget": MINI, "head_budget": MINI, "stateful": False},
        "normed, shared": {**NORMED_HEAD, "buffers": "shared"},
        "normed, personal": {**NORMED_HEAD, "buffers": "personal"},
        "normed, reset": {**NORMED_HEAD, "buffers": "reset"},
    },
    still={"lr": 0.0, "head_lr": 0.0},
    unkeyed={"budget": FULL_STEPS, "head_budget": FULL_STEPS, "start": "common"},
    golden={"plain": {"budget": SHORT, "head_budget": epochs(3, batch=16)}},
)
