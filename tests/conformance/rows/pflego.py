"""The row of pflego."""

from __future__ import annotations

from plures.local import FULL
from tests.conformance.entry import Entry

ENTRY = Entry(
    variants={
        "paper": {"tau": 4, "client_lr": 0.1, "server": 0.05},
        "exact": {"tau": 4, "client_lr": 0.1, "server": 0.2, "preset": "exact"},
        "one step": {"tau": 1, "server": 0.2, "preset": "exact"},
        "uncached": {"tau": 4, "client_lr": 0.1, "server": 0.05, "cache_features": False},
        "mini-batches": {"tau": 4, "client_lr": 0.1, "server": 0.2, "preset": "exact", "batch": 3},
        "newton": {"tau": 2, "server": 0.2, "preset": "exact", "solver": "newton"},
        "stateless": {"tau": 4, "client_lr": 0.1, "server": 0.05, "stateful": False, "start": "common"},
        "normed, shared": {"tau": 3, "client_lr": 0.1, "server": 0.2, "preset": "exact", "buffers": "shared"},
    },
    still={"client_lr": 0.0, "server": 0.0},
    unkeyed={"batch": FULL, "start": "common"},
    without_rates=("newton",),
    large_clients=("newton",),
    golden={
        "paper": {"tau": 6, "client_lr": 0.1, "server": 0.01},
        "exact": {"tau": 6, "client_lr": 0.1, "server": 0.2, "preset": "exact"},
    },
)
