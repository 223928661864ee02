"""Tables as examples: numbers standardised, gaps filled and marked, words one-hot, all by training rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plures.core.goals import Goal
from plures.core.types import Batch
from plures.data.datasets import DataSet
from plures.data.dealing import Indices

ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """One column of a table, as it is held."""

    name: str
    values: NDArray[np.float64]
    """Numbers, NaN where one is missing; in a column of words, the place of each among the levels."""
    levels: tuple[str, ...] | None = None
    """The words of a column of words, sorted; a missing one is the empty word."""
    whole: bool = False
    """Whether its numbers are whole ones."""


class Targets(NamedTuple):
    """What is to be predicted of each row."""

    values: Tensor
    goal: Goal
    class_names: tuple[str, ...] = ()


class Clients(NamedTuple):
    """Whose each row is, as a place among the names."""

    names: tuple[str, ...]
    owners: Indices | None


NO_CLIENTS = Clients((), None)


@dataclass(frozen=True)
class Features:
    """From rows as they are held to features; what it knows was learnt from training rows.

    A number x becomes (x - mean) / std, or 0, the mean, where it is missing; every column of numbers with gaps in
    training rows has one more feature, 1 where the number is missing. A word becomes one feature for each word of
    the training rows, 1 for its own; one that they do not have is 0 in all.
    """

    names: tuple[str, ...]
    numbers: tuple[int, ...]
    """Which columns are numbers."""
    means: tuple[float, ...]
    stds: tuple[float, ...]
    gaps: tuple[int, ...]
    """Which columns of numbers have gaps in training rows."""
    levels: tuple[tuple[int, int], ...]
    """(column, place of a word among its levels), for each word of the training rows."""

    def __call__(self, inputs: Tensor) -> Tensor:
        scaled = (inputs[:, list(self.numbers)] - _row(self.means)) / _row(self.stds)
        columns, places = [column for column, _ in self.levels], [float(place) for _, place in self.levels]
        known = torch.where(scaled.isnan(), 0.0, scaled)
        parts = [known, inputs[:, list(self.gaps)].isnan(), inputs[:, columns] == _row(places)]
        return torch.cat([part.to(torch.float32) for part in parts], dim=1)


@dataclass(frozen=True)
class FitFeatures:
    """Learns means, standard deviations, gaps and words from training rows."""

    names: tuple[str, ...]
    levels: tuple[tuple[str, ...] | None, ...]

    def __call__(self, dataset: DataSet, train: Indices) -> DataSet:
        rows = dataset.examples.inputs.numpy()[train]
        numbers = tuple(place for place, levels in enumerate(self.levels) if levels is None)
        moments = [mean_and_std(rows[:, column]) for column in numbers]
        gaps = tuple(column for column in numbers if np.isnan(rows[:, column]).any())
        words = tuple(
            (column, int(place))
            for column, levels in enumerate(self.levels)
            if levels is not None
            for place in np.unique(rows[:, column])
        )
        features = Features(
            names=self._names(numbers, gaps, words),
            numbers=numbers,
            means=tuple(mean for mean, _ in moments),
            stds=tuple(std for _, std in moments),
            gaps=gaps,
            levels=words,
        )
        return replace(dataset, prepare=features)

    def _names(self, numbers: Sequence[int], gaps: Sequence[int], words: Sequence[tuple[int, int]]) -> tuple[str, ...]:
        missing = [f"{self.names[column]} is missing" for column in gaps]
        one_hot = [f"{self.names[column]} = {(self.levels[column] or ())[place]}" for column, place in words]
        return (*(self.names[column] for column in numbers), *missing, *one_hot)


def mean_and_std(values: NDArray[np.float64]) -> tuple[float, float]:
    """Of the numbers that are there; a column that never differs, but for rounding, keeps its scale."""
    known = values[~np.isnan(values)]
    if not len(known):
        return 0.0, 1.0
    mean, std = float(known.mean()), float(known.std())
    return mean, std if std > ROUNDING * abs(mean) else 1.0


def table_dataset(
    name: str, columns: Sequence[Column], targets: Targets, clients: Clients = NO_CLIENTS, *, num_test: int = 0
) -> DataSet:
    """A data set of a table's columns; the last `num_test` rows are its own test rows."""
    inputs = torch.from_numpy(np.column_stack([column.values for column in columns]))
    fit = FitFeatures(tuple(column.name for column in columns), tuple(column.levels for column in columns))
    return replace(rows_dataset(name, inputs, targets, clients, num_test=num_test), fit=fit)


def rows_dataset(
    name: str, inputs: Tensor, targets: Targets, clients: Clients = NO_CLIENTS, *, num_test: int = 0
) -> DataSet:
    """A data set of inputs that are no columns, such as images; the last `num_test` are its own test rows."""
    owners, num_train = clients.owners, len(inputs) - num_test
    return DataSet(
        name=name,
        examples=Batch(inputs[:num_train], targets.values[:num_train]),
        test=Batch(inputs[num_train:], targets.values[num_train:]) if num_test else None,
        owners=None if owners is None else owners[:num_train],
        test_owners=None if owners is None or not num_test else owners[num_train:],
        owner_names=clients.names,
        class_names=targets.class_names,
        goal=targets.goal,
    )


def _row(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
