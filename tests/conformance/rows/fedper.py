"""The row of fedper."""

from __future__ import annotations

from plures.local import steps
from tests.conformance.entry import FULL_STEPS, MINI, NORMED, Entry

ENTRY = Entry(
    variants={
        "plain": {"budget": steps(3), "lr": 0.1},
        "mini-batches": {"budget": MINI, "lr": 0.1},
        "stateless": {"budget": steps(3), "lr": 0.1, "stateful": False, "start": "common"},
        "normed, shared": {**NORMED, "buffers": "shared"},
    },
    still={"lr": 0.0},
    unkeyed={"budget": FULL_STEPS, "start": "common"},
    golden={"plain": {"budget": steps(5), "lr": 0.1}},
)
