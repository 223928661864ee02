"""The row of pfedgate."""

from __future__ import annotations

from plures.local import adam, exponential
from tests.conformance.entry import FULL_STEPS, MOMENTUM, NORMED, SHORT, Entry

PAIRS = {"budget": FULL_STEPS, "least": 0.34}
"""No batch of one example, which has no statistics; and of every tensor, even of three entries, something is kept."""

ENTRY = Entry(
    variants={
        "plain": {**PAIRS, "lr": 0.5, "gate_lr": 0.5},
        "whole, one head": {**PAIRS, "density": 1.0, "heads": 1},
        "by sample": {**PAIRS, "level": "sample", "density": 0.6},
        "by client": {**PAIRS, "level": "client", "density": 0.6, "select": "exact", "pre_norm": False},
        "rows": {**PAIRS, "cut": "rows", "straight_through": "authors", "density": 0.7},
        "momentum": {**PAIRS, "lr": MOMENTUM, "gate_lr": MOMENTUM, "density": 0.6},
        "equal pieces, dense": {**PAIRS, "cut": "equal", "splits": 3, "density": 0.7, "aggregate": "dense"},
        "bare gate": {**PAIRS, "pre_norm": False, "post_norm": False, "sigmoid": False, "density": 0.8},
        "server adam": {**PAIRS, "lr": exponential(0.2, 0.5), "server": adam(0.05)},
        "stateless": {**PAIRS, "stateful": False},
        "normed, shared": {**PAIRS, **NORMED, "buffers": "shared"},
        "normed, personal": {**PAIRS, **NORMED, "buffers": "personal"},
        "normed, reset": {**PAIRS, **NORMED, "buffers": "reset"},
    },
    still={"lr": 0.0, "gate_lr": 0.0},
    unkeyed={"budget": FULL_STEPS},
    loose=("gate.*.linear.bias", "gate.norm.bias"),  # the batch norm after them takes away what they add
    golden={
        "half": {"budget": SHORT, "lr": 0.2, "gate_lr": 0.2},
        "whole": {"budget": SHORT, "lr": 0.2, "density": 1.0},
    },
)
