"""THE table: every registered method with the variants that must pass every conformance test, on every engine.

A new method is one file in `rows/`; a new engine is one line of `ENGINES`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from plures.core.method import Method
from plures.core.roles import Engine
from plures.engines.sequential import Sequential
from plures.methods import METHODS
from tests.conformance.entry import Entry
from tests.helpers.methods import SIZES, NormedNetwork, Population, TinyNetwork, federation

ENGINES: dict[str, Callable[[], Engine]] = {"sequential": Sequential}


def rows_found() -> dict[str, Entry]:
    """One file per method in `rows/`."""
    names = sorted(path.stem for path in (Path(__file__).parent / "rows").glob("*.py") if path.stem != "__init__")
    return {name: import_module(f"tests.conformance.rows.{name}").ENTRY for name in names}


TABLE: dict[str, Entry] = rows_found()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant of one method."""

    method: str
    variant: str

    @property
    def entry(self) -> Entry:
        return TABLE[self.method]

    @property
    def options(self) -> Mapping[str, Any]:
        return self.entry.variants[self.variant]

    def make(self, **others: Any) -> Method:
        return METHODS[self.method].make(**{**self.options, **others})

    @property
    def network(self) -> type[nn.Module]:
        return NormedNetwork if self.variant.startswith("normed") else TinyNetwork

    def population(self, sizes: Sequence[int] = SIZES) -> Population:
        return federation([10 * size for size in sizes] if self.variant in self.entry.large_clients else sizes)

    def __str__(self) -> str:
        return f"{self.method}: {self.variant}"


ROWS = [Row(method=method, variant=variant) for method, entry in TABLE.items() for variant in entry.variants]


def has_option(method: str, option: str) -> bool:
    return option in inspect.signature(METHODS[method].make).parameters
