"""The row of apfl."""

from __future__ import annotations

from plures.local import adam, sgd
from plures.server.weights import uniform
from tests.conformance.entry import FULL_STEPS, MINI, NORMED, SHORT, Entry

ENTRY = Entry(
    variants={
        "plain": {"budget": MINI},
        "momentum": {"budget": MINI, "lr": sgd(0.1, momentum=0.5), "alpha": 0.8, "weight": uniform},
        "server adam": {"budget": MINI, "alpha": 0.2, "alpha_lr": 0.5, "server": adam(0.05)},
        "stateless": {"budget": MINI, "stateful": False},
        "normed, shared": {**NORMED, "buffers": "shared"},
        "normed, personal": {**NORMED, "buffers": "personal"},
    },
    still={"lr": 0.0, "alpha_lr": 0.0},
    unkeyed={"budget": FULL_STEPS},
    golden={"plain": {"budget": SHORT}},
)
