"""The row of ditto."""

from __future__ import annotations

from plures.local import adam, epochs
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, SHORT, Entry

NORMED_TWIN = {**NORMED, "personal_budget": FULL_STEPS}

ENTRY = Entry(
    variants={
        "online": {"budget": MINI, "personal_budget": epochs(1, batch=4, cap=2), "personal_lr": 0.2, "lam": 0.5},
        "trained centre": {"budget": MINI, "personal_budget": MINI, "centre": "trained", "lam": 0.5},
        "momentum": {"budget": MINI, "personal_budget": MINI, "lr": MOMENTUM, "clip_norm": 0.5, "lam": 0.5},
        "server adam": {"budget": MINI, "personal_budget": MINI, "server": adam(0.05)},
        "fine-tuning": {"variant": "ft", "budget": MINI, "adapt": MINI},
        "stateless": {"budget": MINI, "personal_budget": MINI, "stateful": False},
        "normed, shared": {**NORMED_TWIN, "buffers": "shared"},
        "normed, personal": {**NORMED_TWIN, "buffers": "personal"},
        "normed, reset": {**NORMED_TWIN, "buffers": "reset"},
    },
    still={"lr": 0.0, "personal_lr": 0.0},
    unkeyed={"budget": FULL_STEPS, "personal_budget": FULL_STEPS},
    golden={
        "online": {"budget": SHORT, "personal_budget": SHORT, "lam": 0.5},
        "trained centre": {"budget": SHORT, "personal_budget": SHORT, "lam": 0.5, "centre": "trained"},
        "fine-tuning": {"variant": "ft", "budget": SHORT, "adapt": SHORT, "lam": 0.5},
    },
)
