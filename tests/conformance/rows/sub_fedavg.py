"""The row of sub_fedavg."""

from __future__ import annotations

from plures.local import adam, epochs, exponential
from plures.server.weights import samples
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, NORMED, Entry

EAGER = {"budget": MINI, "lr": 0.3, "prune_share": 0.15, "accuracy_threshold": 0.0}
"""Tensors of 12 and 9 weights lose 2 each at a time, if another two are the smallest after the second epoch."""

ENTRY = Entry(
    variants={
        "plain": EAGER,
        "momentum": {**EAGER, "lr": MOMENTUM, "weight": samples},
        "accurate": {**EAGER, "accuracy_threshold": 0.6, "target_density": 0.8},
        "hybrid": {**EAGER, "variant": "hybrid"},
        "server adam": {**EAGER, "lr": exponential(0.3, 0.5), "server": adam(0.05)},
        "clipped": {**EAGER, "budget": FULL_STEPS, "clip_norm": 0.5},
        "normed, shared": {**EAGER, **NORMED, "buffers": "shared"},
        "normed, personal": {**EAGER, **NORMED, "buffers": "personal"},
        "normed, reset": {**EAGER, **NORMED, "buffers": "reset"},
    },
    still={"lr": 0.0},
    unkeyed={"budget": FULL_STEPS},
    golden={
        "plain": {"budget": epochs(2, batch=16), "lr": 0.2},
        "eager": {"budget": epochs(2, batch=16), "lr": 0.2, "prune_share": 0.3, "accuracy_threshold": 0.0},
    },
)
