"""TOML that anybody may have written, read in time."""

from __future__ import annotations

import re
import tomllib
from typing import Any

MOST_DOTS = 200
"""In one key: tomllib takes time by the square of them, minutes for a file of a hundred kilobytes."""


def parse_toml(text: str) -> dict[str, Any]:
    """A ValueError where it is none; a RecursionError where values are nested without end."""
    if max(piece.count(".") for piece in re.split("[,=\n]", text)) > MOST_DOTS:
        raise ValueError(f"a key has more than {MOST_DOTS} dots")
    return tomllib.loads(text)
