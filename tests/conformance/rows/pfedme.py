"""The row of pfedme."""

from __future__ import annotations

from plures.local import adam
from plures.server.weights import samples
from tests.conformance.entry import FULL_STEPS, MINI, SHORT, Entry

RATES = {"lam": 2.0, "inner_steps": 3, "inner_lr": 0.2, "lr": 0.3}
PLAIN = {**RATES, "budget": MINI}
NORMED = {**RATES, "budget": FULL_STEPS}

ENTRY = Entry(
    variants={
        "theta": PLAIN,
        "fine-tuned": {**PLAIN, "personal_model": "finetuned", "weight": samples},
        "detached": {**PLAIN, "detached_prox": True, "inner_steps": 2},
        "half way": {**PLAIN, "server": 0.5},
        "server adam": {**PLAIN, "server": adam(0.05)},
        "normed, shared": {**NORMED, "buffers": "shared"},
        "normed, personal": {**NORMED, "buffers": "personal"},
        "normed, reset": {**NORMED, "buffers": "reset"},
    },
    still={"lr": 0.0, "inner_lr": 0.0},
    unkeyed={"budget": FULL_STEPS},
    golden={
        "theta": {**RATES, "budget": SHORT},
        "detached, fine-tuned": {
            **RATES,
            "budget": SHORT,
            "adapt": SHORT,
            "detached_prox": True,
            "personal_model": "finetuned",
        },
    },
)
