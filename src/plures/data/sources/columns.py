"""Columns of a table: from the texts of a file, and from columns the targets and the clients."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from plures.core.errors import InvalidData, did_you_mean
from plures.core.goals import CLASSIFICATION, REGRESSION
from plures.data.dealing import Indices
from plures.data.tables import Clients, Column, Targets

TableGoal = Literal["classification", "regression"]

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "None")
"""What stands for a value that is not there."""

MOST_WORDS = 100
"""In a column that nobody has called one of words."""

MOST_CLASSES = 1000

CATEGORICAL = "name the column in categorical"


@dataclass(frozen=True)
class Origin:
    """The files that rows come from, one after another, each with its number of rows."""

    files: tuple[tuple[str, int], ...]

    @property
    def num_rows(self) -> int:
        return sum(size for _, size in self.files)

    def row(self, number: int) -> str:
        """Where a row is, counted from 1, without the line of names."""
        for name, size in self.files:
            if number < size:
                return f"{name}, row {number + 1}"
            number -= size
        raise IndexError(number)

    def __str__(self) -> str:
        return " and ".join(name for name, _ in self.files)


def feature_from_texts(
    name: str, texts: Sequence[str], origin: Origin, *, words: bool | None, otherwise: str = CATEGORICAL
) -> Column:
    """Numbers, or words where most of the texts are no numbers; `words` decides it beforehand."""
    if words:
        return from_words(name, texts)
    column, bad = from_numbers(name, texts)
    if not len(bad):
        return column
    if words is None and 2 * len(bad) > len(texts) - sum(map(is_missing, texts)):
        refuse_many_words(name, texts, origin)
        return from_words(name, texts)
    raise _no_number(name, texts, int(bad[0]), origin, otherwise)


def target_from_texts(name: str, texts: Sequence[str], origin: Origin, goal: TableGoal | None) -> Column:
    """Numbers if all texts are numbers, else words, unless numbers are to be predicted."""
    column, bad = from_numbers(name, texts)
    if not len(bad):
        return column
    if goal == "regression":
        raise _no_number(name, texts, int(bad[0]), origin, "say goal = 'classification'")
    return from_words(name, texts)


def from_numbers(name: str, texts: Sequence[str]) -> tuple[Column, Indices]:
    """A column of numbers, and the rows that have something else."""
    given = np.array([not is_missing(text) for text in texts], dtype=bool)
    values = np.array([_number(text) for text in texts], dtype=np.float64)
    whole = all(text.strip().lstrip("+-").isdigit() for text in texts if not is_missing(text))
    return Column(name=name, values=values, whole=whole), np.flatnonzero(given & ~np.isfinite(values))


def from_words(name: str, texts: Sequence[str]) -> Column:
    """A column of words; a missing one is the empty word, numbers come in their order before all others."""
    words = ["" if is_missing(text) else text.strip() for text in texts]
    levels = sorted(set(words), key=lambda word: (0, int(word), word) if word.isdecimal() else (1, 0, word))
    places = {word: float(place) for place, word in enumerate(levels)}
    return Column(name=name, values=np.array([places[word] for word in words]), levels=tuple(levels))


def is_missing(text: str) -> bool:
    return text.strip() in MISSING


def check_columns(origin: Origin, known: Collection[str], wanted: Sequence[str]) -> None:
    """An error if a column that is asked for is not there."""
    absent = [name for name in wanted if name not in known]
    if absent:
        raise InvalidData([f"{origin} has no column '{name}'. {did_you_mean(name, known)}" for name in absent])


def refuse_many_words(name: str, texts: Sequence[str], origin: Origin) -> None:
    """An error if a column seems to hold names or sentences."""
    count = len(set(texts))
    if count > MOST_WORDS:
        remedy = "Leave it out of features, or name it in categorical if each is a level of its own"
        raise InvalidData(f"{origin}: column '{name}' has {count} different words. {remedy}.")


def clients_of(column: Column, origin: Origin) -> Clients:
    """The client that each row names; the column is one of words."""
    levels = column.levels or ()
    if "" in levels:
        row = int(np.flatnonzero(column.values == levels.index(""))[0])
        raise InvalidData(f"{origin.row(row)}: column '{column.name}' names no client. Name one, or drop the row.")
    return Clients(levels, column.values.astype(np.int64))


def targets_of(column: Column, origin: Origin, goal: TableGoal | None) -> Targets:
    """Words and whole numbers are classes unless `goal` says otherwise."""
    numbers = column.levels is None
    absent = np.flatnonzero(_is_absent(column))
    if len(absent):
        where = origin.row(int(absent[0]))
        raise InvalidData(f"{where}: the target, column '{column.name}', is missing. Give it, or drop the row.")
    if goal == "regression" or (goal is None and numbers and not column.whole):
        if not numbers:
            remedy = "Choose another target, or say goal = 'classification'"
            raise InvalidData(f"{origin}: the target, column '{column.name}', has words, not numbers. {remedy}.")
        return Targets(torch.from_numpy(column.values.astype(np.float32)), REGRESSION)
    values, places = np.unique(column.values, return_inverse=True)
    if len(values) > MOST_CLASSES:
        remedy = "If it is a number to predict, say goal = 'regression'"
        raise InvalidData(f"{origin}: the target, column '{column.name}', has {len(values)} values. {remedy}.")
    names = tuple(f"{value:.15g}" for value in values) if column.levels is None else column.levels
    return Targets(torch.from_numpy(places.reshape(-1).astype(np.int64)), CLASSIFICATION, names)


def _is_absent(column: Column) -> NDArray[np.bool_]:
    if column.levels is None:
        return ~np.isfinite(column.values)
    nothing = column.levels.index("") if "" in column.levels else -1
    return np.equal(column.values, nothing)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _no_number(name: str, texts: Sequence[str], row: int, origin: Origin, otherwise: str) -> InvalidData:
    problem = f"{origin.row(row)}: column '{name}' has '{texts[row].strip()[:40]}' where it should have a number"
    return InvalidData(f"{problem}. Correct it, or {otherwise}.")
