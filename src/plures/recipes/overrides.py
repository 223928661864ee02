"""Single keys of an experiment given as text, such as "data.clients=10"."""

from __future__ import annotations

import tomllib
from typing import Any

from plures.core.errors import InvalidConfig


def apply_override(table: dict[str, Any], override: str) -> None:
    """Set one key of a nested table from text such as "data.clients=10"."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise InvalidConfig(f"'{override}' is not of the form KEY=VALUE, such as rounds=50 or data.clients=10.")
    set_key(table, key.strip(), parse_value(text.strip()))


def set_key(table: dict[str, Any], key: str, value: Any) -> None:
    """Set one key of a nested table, such as data.clients."""
    *tables, last = key.split(".")
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise InvalidConfig(f"'{key}' goes through '{name}', which is a value and not a table.")
    table[last] = value


def parse_value(text: str) -> Any:
    """A TOML value; what is none is taken as plain text, so that quotes may be left out."""
    for form in (text, f"0{text}"):  # .1 is meant as 0.1
        try:
            return tomllib.loads(f"value = {form}")["value"]
        except (ValueError, RecursionError):  # no TOML, or more of it than anybody means
            if not text.startswith("."):
                break
    return text
