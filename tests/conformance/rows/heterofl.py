"""The row of heterofl."""

from __future__ import annotations

from plures.local import adam, exponential
from plures.server.weights import samples
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, SHORT, Entry

BARE = {"scaler": False, "mask_logits": False, "clip_norm": None}
NARROW = {**NORMED, "width": 0.5}

ENTRY = Entry(
    variants={
        "plain": {"budget": MINI},
        "narrow": {"budget": MINI, "width": 0.5},
        "momentum": {"budget": MINI, "width": 0.3, "lr": MOMENTUM},
        "bare": {"budget": MINI, "width": 0.5, **BARE},
        "by examples": {"budget": MINI, "width": 0.5, "weight": samples},
        "server adam": {"budget": MINI, "width": 0.5, "lr": exponential(0.2, 0.5), "server": adam(0.05)},
        "normed": NARROW,
        "normed, shared": {**NARROW, "buffers": "shared"},
        "normed, personal": {**NARROW, "buffers": "personal"},
    },
    still={"lr": 0.0},
    unkeyed={"budget": FULL_STEPS},
    golden={"narrow": {"budget": SHORT, "lr": 0.2, "width": 0.5}},
)
