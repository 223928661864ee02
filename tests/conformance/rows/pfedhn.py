"""The row of pfedhn."""

from __future__ import annotations

from plures.local import adam, exponential, sgd
from plures.parts import head
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, SHORT, Entry

SMALL = {"hidden": 6, "layers": 1, "lr": 0.1, "server": 0.3}
"""A hypernetwork for 27 parameters, at rates with which six rounds are enough to learn something."""
DIGITS = {"hidden": 16, "layers": 1, "budget": SHORT, "lr": 0.1, "server": 0.1}

ENTRY = Entry(
    variants={
        "plain": {**SMALL, "budget": MINI},
        "together": {**SMALL, "budget": MINI, "one_by_one": False},
        "momentum": {**SMALL, "budget": MINI, "lr": MOMENTUM, "server": sgd(0.1, momentum=0.5, weight_decay=0.01)},
        "personal head": {**SMALL, "budget": MINI, "personal": head()},
        "embedding of one, linear": {**SMALL, "budget": MINI, "embedding": 1, "layers": 0},
        "clipped": {**SMALL, "budget": MINI, "clip_norm": 0.5, "server_clip": 0.5},
        "server adam": {**SMALL, "budget": MINI, "lr": exponential(0.2, 0.5), "server": adam(0.05)},
        "normed, shared": {**SMALL, **NORMED, "buffers": "shared"},
        "normed, personal": {**SMALL, **NORMED, "buffers": "personal"},
        "normed, reset": {**SMALL, **NORMED, "buffers": "reset", "one_by_one": False},
    },
    still={"lr": 0.0, "server": 0.1},
    unkeyed={"budget": FULL_STEPS},
    at_server=("shared.hyper", "shared.hyper.mean"),
    numbered=True,
    golden={"plain": DIGITS, "personal head": {**DIGITS, "personal": head()}},
)
