"""Values of code as they would stand in a file, so that a resolved configuration can be run again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from plures.core.method import Weight
from plures.core.rates import Constant
from plures.local import OPTIMIZERS, SCHEDULES
from plures.local.budgets import Epochs, Steps
from plures.parts import Selector
from plures.server import SERVER_OPTIMIZERS
from plures.server.weights import NumBatches


def to_plain(value: Any) -> Any:
    """A value as it would stand in a file; None where a file would leave it out or has no words for it."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Weight):
        return {"batches": value.share.batch} if isinstance(value.share, NumBatches) else value.name
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, Epochs | Steps):
        kind = "epochs" if isinstance(value, Epochs) else "steps"
        table = {kind: value.count, "batch": value.batch}
        return table | ({"cap": value.cap} if isinstance(value, Epochs) and value.cap is not None else {})
    if isinstance(value, Constant):
        return value.value
    if isinstance(value, Selector):
        words = value.in_file()
        return words if words is None or len(words) != 1 else words[0]
    return table_of("optimizer", value, {**OPTIMIZERS, **SERVER_OPTIMIZERS}) or table_of("schedule", value, SCHEDULES)


def table_of(key: str, value: Any, makers: Mapping[str, Callable[..., Any]]) -> dict[str, Any] | None:
    """{optimizer = "sgd", lr = 1.0, momentum = 0.9}: the maker whose class this is, and its options."""
    if not is_dataclass(value):
        return None
    words = type(value).__name__.lower()
    for name, make in makers.items():
        options = inspect.signature(make).parameters
        if name.replace("_", "") == words:
            own = {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
            return {key: name} | {option: own[option] for option in options if own.get(option) is not None}
    return None


def plain_defaults(make: Callable[..., Any]) -> dict[str, Any]:
    """The defaults of a maker that a file can say."""
    defaults = {name: to_plain(p.default) for name, p in inspect.signature(make).parameters.items()}
    return {name: value for name, value in defaults.items() if value is not None}
