"""The row of fedsim."""

from __future__ import annotations

from plures.local import adam
from tests.conformance.entry import FULL_STEPS, MINI, NORMED, SHORT, Entry

ENTRY = Entry(
    variants={
        "head": {"budget": MINI, "personal_lr": 0.2, "personal_l2": 0.1},
        "first layer": {"budget": MINI, "personal": "first_layer", "server": adam(0.05)},
        "clipped": {"budget": MINI, "clip_norm": 0.3, "start": "uniform"},
        "mean-regularised": {"budget": MINI, "mean_regularised": 0.3},
        "stateless": {"budget": MINI, "stateful": False},
        "normed, personal": {**NORMED, "buffers": "personal"},
    },
    still={"lr": 0.0, "personal_lr": 0.0},
    unkeyed={"budget": FULL_STEPS, "start": "common"},
    golden={"head": {"budget": SHORT}, "mean-regularised": {"budget": SHORT, "mean_regularised": 0.5}},
)
