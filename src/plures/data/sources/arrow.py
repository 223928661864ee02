"""Tables of pyarrow, the form of parquet files and of data sets on the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from plures.core.errors import InvalidData
from plures.data.sources.columns import Origin, TableGoal, from_words, refuse_many_words
from plures.data.sources.reading import optional_package
from plures.data.tables import Column

TEXT = ("string", "large_string", "string_view")


@dataclass(frozen=True)
class ArrowTable:
    """Columns with types: what is a number and what a word is known."""

    table: Any
    origin: Origin

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.table.column_names]

    def feature(self, name: str, *, words: bool | None) -> Column:
        """`words` makes words of numbers."""
        array = self._array(name)
        if words:
            return self.words(name)
        if str(array.type) in TEXT and words is None:
            refuse_many_words(name, _texts(array), self.origin)
        return self._column(name, array)

    def target(self, name: str, goal: TableGoal | None) -> Column:
        return self._column(name, self._array(name))

    def words(self, name: str) -> Column:
        return from_words(name, _texts(self._array(name)))

    def _array(self, name: str) -> Any:
        array = self.table.column(name)
        kind = array.type
        return array.cast(kind.value_type) if _types().is_dictionary(kind) else array

    def _column(self, name: str, array: Any) -> Column:
        kind, types = array.type, _types()
        if str(kind) in TEXT:
            return from_words(name, _texts(array))
        whole = bool(types.is_boolean(kind) or types.is_integer(kind))
        if not (whole or types.is_floating(kind) or types.is_decimal(kind)):
            remedy = "Leave it out, or convert it"
            raise InvalidData(f"{self.origin}: column '{name}' is of type {kind}, not numbers or words. {remedy}.")
        array = array.cast("int8") if types.is_boolean(kind) else array
        values = array.cast("float64", safe=False).to_numpy()
        return Column(name=name, values=np.array(values, dtype=np.float64), whole=whole)


def _types() -> Any:
    return optional_package("pyarrow", "A parquet file").types


def _texts(array: Any) -> list[str]:
    return ["" if value is None else str(value) for value in array.to_pylist()]
