"""What is wrong with an experiment file, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from plures.core.errors import did_you_mean


def problems_in(error: ValidationError, experiment: type[BaseModel]) -> list[str]:
    """Every problem that the reader of types has found, in plain words."""
    return [explain(problem, experiment) for problem in distinct(error, experiment)]


def distinct(error: ValidationError, experiment: type[BaseModel]) -> list[Any]:
    """One problem per key: a value that fits none of several types is one problem, not several."""
    seen: dict[tuple[Any, ...], Any] = {}
    for problem in error.errors():
        place = keys_of(problem, experiment)
        seen.setdefault(place, {**problem, "loc": place})
        if seen[place]["msg"] != problem["msg"]:
            seen[place]["msg"] += f"; or {problem['msg'][0].lower()}{problem['msg'][1:]}"
    # What is wrong inside a list or table says more than that it should have been something else.
    within = {place[:length] for place in seen for length in range(1, len(place))}
    return [problem for place, problem in seen.items() if place not in within]


def keys_of(problem: Any, experiment: type[BaseModel]) -> tuple[Any, ...]:
    """Where a problem is, without the names that pydantic adds for the types it tried."""
    place = problem["loc"]
    last = len(place) - 1 if problem["type"] == "extra_forbidden" else None
    found: list[Any] = []
    for number, key in enumerate(place):
        if number in (0, last) or isinstance(key, int) or key in fields_at(found, experiment):
            found.append(key)
    return tuple(found)


def explain(problem: Any, experiment: type[BaseModel]) -> str:
    place = [str(step) for step in problem["loc"]]
    where = ".".join(place)
    if problem["type"] == "extra_forbidden":
        known = fields_at(problem["loc"][:-1], experiment)
        return f"Unknown key '{where}'. {did_you_mean(place[-1], known)}"
    if problem["type"] == "missing":
        if len(place) == 1:
            return f"'{where}' is missing. An experiment needs at least: method = \"fedavg\"."
        if isinstance(place[-1], str) and place[-1].isdigit():
            return f"{'.'.join(place[:-1])} = {problem['input']!r} has {len(problem['input'])} values: it needs more."
        given = ", ".join(f"'{key}'" for key in problem["input"])
        return f"[{place[0]}] has {given or 'no keys'}, but no '{place[-1]}', which it needs."
    return f"{where} = {problem['input']!r}: {problem['msg'][0].lower()}{problem['msg'][1:]}."


def fields_at(place: Sequence[Any], experiment: type[BaseModel]) -> list[str]:
    """The known keys of a table of the file, or of a table in a table."""
    models: list[type[BaseModel]] = [experiment]
    for key in place:
        fields = [model.model_fields[str(key)] for model in models if str(key) in model.model_fields]
        kinds = [kind for field in fields for kind in (field.annotation, *get_args(field.annotation))]
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return [name for model in models for name in model.model_fields]
