"""JSON as records and commands write it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def as_json_text(value: Any, indent: int | None = None) -> str:
    """JSON that every reader takes: a number that is none is null."""
    return json.dumps(without_nan(value), indent=indent, allow_nan=False)


def without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    return [without_nan(item) for item in value] if isinstance(value, list | tuple) else value
