"""Reads csv files, packed or not, as columns of text."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plures.data.sources.columns import (
    CATEGORICAL,
    Origin,
    TableGoal,
    feature_from_texts,
    from_words,
    target_from_texts,
)
from plures.data.sources.reading import open_file, reading, wrong
from plures.data.tables import Column


@dataclass(frozen=True)
class TextTable:
    """Columns of text: what is a number is seen from the texts."""

    texts: Mapping[str, Sequence[str]]
    origin: Origin

    @property
    def names(self) -> list[str]:
        return list(self.texts)

    def feature(self, name: str, *, words: bool | None, otherwise: str = CATEGORICAL) -> Column:
        return feature_from_texts(name, self.texts[name], self.origin, words=words, otherwise=otherwise)

    def target(self, name: str, goal: TableGoal | None) -> Column:
        return target_from_texts(name, self.texts[name], self.origin, goal)

    def words(self, name: str) -> Column:
        return from_words(name, self.texts[name])


def read_csv(*paths: Path, delimiter: str = ",") -> TextTable:
    """The rows of some files with the same columns, one file after another; a column without a name is left out."""
    names, rows = _rows(paths[0], delimiter)
    sizes = [len(rows)]
    for path in paths[1:]:
        other_names, other_rows = _rows(path, delimiter)
        if other_names != names:
            raise wrong(path, f"has other columns than {paths[0]}", f"Give it the columns {', '.join(names)}")
        rows += other_rows
        sizes.append(len(other_rows))
    origin = Origin(tuple((str(path), size) for path, size in zip(paths, sizes, strict=True)))
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return TextTable({name: texts for name, texts in columns if name}, origin)


def _rows(path: Path, delimiter: str) -> tuple[list[str], list[list[str]]]:
    with reading(path, csv.Error, remedy="Save it as text in UTF-8, or fetch it again"), open_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        names, *rows = [row for row in csv.reader(text, delimiter=delimiter) if row] or [[]]
    names = [name.strip() for name in names]
    if not rows:
        raise wrong(path, "has no rows", "Give a first line with the names of the columns, and rows below it")
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            counts = f"{len(row)} values in row {number}, but {len(names)} columns"
            raise wrong(path, f"has {counts}", "Correct the row, or name the delimiter between values")
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise wrong(path, f"has two columns '{twice}'", "Give each a name of its own")
    return names, rows
