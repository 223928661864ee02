"""The row of finetune."""

from __future__ import annotations

from tests.conformance.entry import FULL_STEPS, MINI, NORMED, SHORT, Entry

ENTRY = Entry(
    variants={
        "all": {"budget": MINI},
        "head": {"budget": MINI, "personal": "head"},
        "normed, shared": {**NORMED, "buffers": "shared"},
    },
    still={"lr": 0.0},
    unkeyed={"budget": FULL_STEPS},
    golden={"head": {"budget": SHORT, "tune": SHORT, "personal": "head"}},
)
