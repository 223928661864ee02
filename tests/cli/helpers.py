"""The command line, in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PLURES = Path(sys.executable).parent / "plures"


@dataclass(frozen=True)
class Said:
    """What a command gave back."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """As a user's shell has it, with one thread and lines of 80 columns, and nothing that asks for colour."""
    kept = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "CLICOLOR_FORCE")}
    return kept | {"OMP_NUM_THREADS": "1", "COLUMNS": "80"} | more


def process(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, with pipes for its output."""
    command = [str(PLURES), *map(str, args)]
    return subprocess.run(
        command, cwd=cwd, env=environment(), capture_output=True, encoding="utf-8", timeout=120, check=False
    )


def widest(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)
