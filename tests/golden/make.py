"""Write golden curves anew, for a change that is meant to move them: CHANGELOG.md then says so, with numbers.

From the repository: OMP_NUM_THREADS=1 .venv/bin/python -m tests.golden.make [METHOD ...]
"""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.golden.curves import CLIENTS, COHORT, OPTIONS, ROUNDS, SEED, curves, data

FOLDER = Path(__file__).with_name("curves")


def made(method: str) -> dict[str, Any]:
    return {
        "how": {
            "command": f"OMP_NUM_THREADS=1 .venv/bin/python -m tests.golden.make {method}",
            "what": "mean training loss of each phase by round; 'after' is the loss of each client's personal model",
            "runs": f"float64, {ROUNDS} rounds of {COHORT} of {CLIENTS} clients, seed {SEED}; options in its row",
            "data": dict(data().fingerprint()),
            "versions": {"torch": version("torch"), "python": platform.python_version(), "machine": platform.machine()},
        },
        "curves": {variant: curves(method, variant) for variant in OPTIONS[method]},
    }


def write(method: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{method}.json").write_text(json.dumps(made(method), indent=1) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:] or OPTIONS:
        write(name)
