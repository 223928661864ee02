"""The row of fedrecon."""

from __future__ import annotations

from plures.local import adam, epochs, steps
from plures.server.weights import uniform
from tests.conformance.entry import FULL_STEPS, MINI, MOMENTUM, SHORT, Entry

RECON = {"budget": MINI, "recon_budget": MINI}
NORMED_RECON = {"budget": FULL_STEPS, "recon_budget": FULL_STEPS}
PFLEGO = {"variant": "pflego", "recon_budget": steps(3), "recon_lr": 0.1, "start": "common", "server": 0.05}

ENTRY = Entry(
    variants={
        "recon": {**RECON, "recon_lr": 0.2, "server": 1.0},
        "momentum": {**RECON, "lr": MOMENTUM, "weight": uniform},
        "first layer": {**RECON, "personal": "first_layer", "server": adam(0.05)},
        "pflego": PFLEGO,
        "pflego, mini-batches": {**PFLEGO, "recon_budget": epochs(2, batch=3), "start": "uniform"},
        "normed, shared": {**NORMED_RECON, "buffers": "shared"},
        "normed, personal": {**NORMED_RECON, "buffers": "personal"},
        "normed, reset": {**NORMED_RECON, "buffers": "reset"},
        "normed, shared, pflego": {**PFLEGO, "buffers": "shared"},
    },
    still={"lr": 0.0, "recon_lr": 0.0, "server": 0.0},
    unkeyed={"budget": FULL_STEPS, "recon_budget": FULL_STEPS, "start": "common"},
    large_clients=("normed, shared", "normed, personal", "normed, reset"),  # half of 3 examples is one: no statistics
    golden={
        "recon": {"budget": SHORT, "recon_budget": SHORT},
        "pflego": {"variant": "pflego", "recon_budget": steps(6), "recon_lr": 0.1, "start": "common", "server": 0.01},
    },
)
