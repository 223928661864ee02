"""The row of fedbabu."""

from __future__ import annotations

from plures.local import adam
from plures.server.weights import uniform
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, SHORT, Entry

ENTRY = Entry(
    variants={
        "plain": {"budget": MINI},
        "orthonormal": {"budget": MINI, "orthonormal": True, "finetune_part": "head", "server": adam(0.05)},
        "momentum": {"budget": MINI, "lr": MOMENTUM, "clip_norm": 0.5, "weight": uniform, "finetune_part": "body"},
        "normed, shared": {**NORMED, "buffers": "shared"},
        "normed, personal": {**NORMED, "buffers": "personal"},
    },
    still={"lr": 0.0, "tune_lr": 0.0},
    unkeyed={"budget": FULL_STEPS},
    golden={
        "plain": {"budget": SHORT, "tune": SHORT},
        "orthonormal": {"budget": SHORT, "tune": SHORT, "orthonormal": True, "finetune_part": "head"},
    },
)
