"""The row of per_fedavg."""

from __future__ import annotations

from plures.local import adam, steps
from plures.server.weights import uniform
from tests.conformance.entry import MOMENTUM, Entry

SIX = steps(6, batch=3)
"""Three pairs of batches or two triples."""
NORMED = {"budget": steps(4), "lr": 0.1}

ENTRY = Entry(
    variants={
        "first order": {"budget": SIX, "inner_lr": 0.1},
        "Hessian-free": {"budget": SIX, "lr": 0.3, "inner_lr": 0.1, "variant": "hessian_free"},
        "momentum": {"budget": SIX, "lr": MOMENTUM, "weight": uniform},
        "server adam": {"budget": SIX, "server": adam(0.05)},
        "normed, shared": {**NORMED, "buffers": "shared"},
        "normed, reset": {**NORMED, "buffers": "reset"},
    },
    still={"lr": 0.0, "inner_lr": 0.0},
    unkeyed={"budget": steps(6)},
    golden={
        "first order": {"budget": steps(10, batch=16), "inner_lr": 0.05},
        "Hessian-free": {"budget": steps(9, batch=16), "inner_lr": 0.05, "variant": "hessian_free"},
    },
)
