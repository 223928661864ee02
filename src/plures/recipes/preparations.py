"""How inputs are prepared, as plain data beside a model and back: what a file says, a model can do again."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from plures.core.errors import InvalidData
from plures.data.client import Prepare
from plures.data.datasets import Scaled
from plures.data.sources.sensors import as_float32
from plures.data.tables import Features

OWN = "own"
"""The kind of a preparation that is a function of the user's: no file can hold it."""

Described = dict[str, Any]


def described(prepare: Prepare | None) -> Described | None:
    """A preparation as JSON has it; None where inputs are taken as they are held."""
    if prepare is None:
        return None
    if isinstance(prepare, Scaled):
        return {"kind": "scaled", **asdict(prepare)}
    if isinstance(prepare, Features):
        return {"kind": "features", **asdict(prepare), "columns": columns_of(prepare)}
    if prepare is as_float32:
        return {"kind": "float32"}
    return {"kind": OWN, "name": getattr(prepare, "__qualname__", type(prepare).__qualname__)}


def rebuilt(told: Described | None) -> Prepare | None:
    """The preparation that was described."""
    if told is None:
        return None
    values = {name: as_tuples(value) for name, value in told.items()}
    if told["kind"] == "scaled":
        return Scaled(**{field.name: values[field.name] for field in fields(Scaled)})
    if told["kind"] == "features":
        return Features(**{field.name: values[field.name] for field in fields(Features)})
    if told["kind"] == "float32":
        return as_float32
    raise InvalidData(f"The preparation '{told.get('name', told['kind'])}' is a function that the file does not hold.")


def as_tuples(value: Any) -> Any:
    return tuple(map(as_tuples, value)) if isinstance(value, list | tuple) else value


def columns_of(features: Features) -> list[dict[str, Any]]:
    """The columns of a row as it is held, in order: numbers, or words each of which has a number."""
    found: dict[int, dict[str, Any]] = {}
    for column, name in zip(features.numbers, features.names, strict=False):
        found[column] = {"name": name}
    words = features.names[len(features.names) - len(features.levels) :]
    for (column, place), name in zip(features.levels, words, strict=True):
        of, _, word = name.partition(" = ")
        found.setdefault(column, {"name": of, "words": {}})["words"][word] = place
    return [found[column] for column in sorted(found)]
