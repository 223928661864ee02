"""Reads json and lines of json, packed or not, and takes from them what must be there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plures.data.sources.reading import open_file, reading, wrong

KINDS = {str: "text", int: "a whole number", list: "a list", dict: "a table"}


def read_json(path: Path) -> Any:
    """What a json file holds."""
    with reading(path), open_file(path) as file:
        return json.load(file)


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line of a file that is one table, with its place for an error to name; empty lines are left out."""
    with reading(path):
        file = open_file(path)
    with file:
        number = 0
        while True:
            with reading(path):
                line = file.readline()
            number += 1
            if not line:
                return
            if line.strip():
                yield f"line {number}", _table(path, number, line)


def _table(path: Path, number: int, line: bytes) -> dict[str, Any]:
    with reading(path, remedy=f"Line {number} is no json: correct or remove it"):
        table = json.loads(line)
    if not isinstance(table, dict):
        raise wrong(path, f"has in line {number} no table such as {{...}}", "Correct or remove the line")
    return table


def taken(path: Path, table: Any, key: str, kind: type, where: str, remedy: str) -> Any:
    """table[key], which must be there and of that kind; `remedy` says which form the file should have."""
    if not isinstance(table, dict) or key not in table:
        raise wrong(path, f"has no '{key}' in {where}", remedy)
    value = table[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise wrong(path, f"has in {where} a '{key}' that is not {KINDS[kind]}: {str(value)[:40]!r}", remedy)
    return value


def listed(path: Path, value: Any, remedy: str) -> list[Any]:
    """The list that a whole file must be, with something in it."""
    if not isinstance(value, list) or not value:
        raise wrong(path, "is not a list of entries, or an empty one", remedy)
    return value
