"""The row of subsampling."""

from __future__ import annotations

from plures.local import adam, exponential
from plures.server.weights import samples
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, SHORT, Entry

ENTRY = Entry(
    variants={
        "plain": {"budget": MINI},
        "momentum": {"budget": MINI, "lr": MOMENTUM, "weight": samples},
        "rescaled": {"budget": MINI, "keep": 0.3, "rescale": True},
        "by coin": {"budget": MINI, "exact": False, "keep": 0.7},
        "server adam": {"budget": MINI, "lr": exponential(0.2, 0.5), "server": adam(0.05)},
        "clipped": {"budget": FULL_STEPS, "clip_norm": 0.5},
        "normed, shared": {**NORMED, "buffers": "shared"},
        "normed, personal": {**NORMED, "buffers": "personal"},
        "normed, reset": {**NORMED, "buffers": "reset"},
    },
    still={"lr": 0.0},
    unkeyed={"budget": FULL_STEPS, "keep": 1.0},
    golden={"plain": {"budget": SHORT, "lr": 0.2}, "rescaled": {"budget": SHORT, "lr": 0.2, "rescale": True}},
)
