"""The row of fedmask."""

from __future__ import annotations

from plures.local import epochs, steps
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, SHORT, Entry

BOTH = {"budget": MINI, "first_budget": MINI, "adapt": epochs(10, batch=3), "density": 0.7, "lr": 0.5}
"""Two of three units; so long and fast that bits change."""
ALL = "*.weight"
NORMED = {**BOTH, "budget": FULL_STEPS, "first_budget": FULL_STEPS, "adapt": steps(30)}

ENTRY = Entry(
    variants={
        "plain": BOTH,
        "two layers": {**BOTH, "masked": ALL},
        "momentum": {**BOTH, "lr": MOMENTUM, "clip_norm": 0.5, "masked": ALL},
        "single entries": {**BOTH, "structured": False, "straight_through": "identity"},
        "whole": {**BOTH, "density": 1.0, "quorum": 1},
        "normed, shared": {**NORMED, "buffers": "shared"},
        "normed, personal": {**NORMED, "buffers": "personal"},
        "normed, reset": {**NORMED, "buffers": "reset"},
    },
    # Without a quorum there is no vote, and of a density of 1 nothing is pruned: both move whatever the rates are.
    still={"lr": 0.0, "density": 1.0, "quorum": 100},
    unkeyed={"budget": FULL_STEPS, "first_budget": FULL_STEPS},
    golden={
        "single entries": {"budget": SHORT, "first_budget": SHORT, "masked": ALL, "structured": False, "lr": 1.0},
        "units, no vote": {"budget": SHORT, "first_budget": SHORT, "masked": ALL, "lr": 1.0, "quorum": 9},
    },
)
