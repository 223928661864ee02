"""The row of fedspa."""

from __future__ import annotations

from plures.local import adam, exponential
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, SHORT, Entry

ENTRY = Entry(
    variants={
        "plain": {"budget": MINI},
        "momentum": {"budget": MINI, "lr": MOMENTUM},
        "rsm": {"budget": MINI, "search": "rsm", "density": 0.4},
        "different masks": {"budget": MINI, "same_masks": False, "regrow": "random"},
        "uniform densities": {"budget": MINI, "densities": "uniform", "density": 0.7, "prune_rate": 0.3},
        "per coordinate": {"budget": MINI, "per_coordinate": True, "same_masks": False},
        "server adam": {"budget": MINI, "lr": exponential(0.2, 0.5), "server": adam(0.05)},
        "normed, shared": {**NORMED, "buffers": "shared"},
        "normed, personal": {**NORMED, "buffers": "personal"},
        "normed, reset": {**NORMED, "buffers": "reset"},
    },
    still={"lr": 0.0, "prune_rate": 0.0},
    unkeyed={"budget": FULL_STEPS, "same_masks": True, "regrow": "gradient"},
    golden={"dst": {"budget": SHORT, "lr": 0.2}, "rsm": {"budget": SHORT, "lr": 0.2, "search": "rsm"}},
)
