"""What the papers printed, one TOML file for each."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any


def load(paper: str) -> dict[str, Any]:
    """Every published number of a paper, by item."""
    return tomllib.loads((files(__package__) / f"{paper}.toml").read_text(encoding="utf-8"))
