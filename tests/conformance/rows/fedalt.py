"""The row of fedalt."""

from __future__ import annotations

from plures.local import adam, epochs
from tests.conformance.entry import FULL_STEPS, MINI, NORMED, SHORT, Entry

ENTRY = Entry(
    variants={
        "head": {"budget": MINI, "personal_budget": epochs(1, batch=4, cap=2), "personal_lr": 0.2},
        "first layer": {"budget": MINI, "personal": "first_layer", "personal_l2": 0.1, "server": adam(0.05)},
        "mean-regularised": {"budget": MINI, "mean_regularised": 0.3},
        "stateless": {"budget": MINI, "stateful": False},
        "normed, reset": {**NORMED, "buffers": "reset"},
    },
    still={"lr": 0.0, "personal_lr": 0.0},
    unkeyed={"budget": FULL_STEPS, "personal_budget": FULL_STEPS, "start": "common"},
    golden={"head": {"budget": SHORT}, "mean-regularised": {"budget": SHORT, "mean_regularised": 0.5}},
)
