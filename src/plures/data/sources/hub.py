"""Data sets of the Hugging Face hub, by name or as they are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.goals import CLASSIFICATION
from plures.data.datasets import DataSet, Scaled
from plures.data.sources.arrow import ArrowTable
from plures.data.sources.columns import Origin, TableGoal, check_columns, targets_of
from plures.data.sources.hub_inputs import is_array, is_image, is_text, read_arrays, read_images, read_texts
from plures.data.sources.own_tables import Use, arrow_table
from plures.data.sources.reading import check_choice, check_count, optional_package
from plures.data.sources.registry import source
from plures.data.tables import Targets, rows_dataset, table_dataset
from plures.data.text import WORDS_PER_SEQUENCE

WHAT = "A data set of the Hugging Face hub"


@source(
    "hub",
    about="any data set of the Hugging Face hub: images, arrays, tables or text; clients by a column of it",
    files=("name: that of a data set on the hub",),
)
def hub(
    name: str,
    inputs: str | Sequence[str],
    *,
    target: str | None = None,
    client: str | None = None,
    split: str = "train",
    test_split: str | None = None,
    config: str | None = None,
    goal: TableGoal | None = None,
    categorical: Sequence[str] | None = None,
    length: int = WORDS_PER_SEQUENCE,
    vocabulary: int = 10_000,
) -> DataSet:
    """The rows of one split, and of another the data set's own test rows; all else is as in `from_hub`."""
    return from_hub(
        _fetched(name, config, split),
        inputs=inputs,
        target=target,
        client=client,
        test=None if test_split is None else _fetched(name, config, test_split),
        goal=goal,
        categorical=categorical,
        length=length,
        vocabulary=vocabulary,
        name=name,
    )


def from_hub(
    dataset: Any,
    *,
    inputs: str | Sequence[str],
    target: str | None = None,
    client: str | None = None,
    test: Any = None,
    goal: TableGoal | None = None,
    categorical: Sequence[str] | None = None,
    length: int = WORDS_PER_SEQUENCE,
    vocabulary: int = 10_000,
    name: str = "The data set",
) -> DataSet:
    """A `datasets.Dataset`, its columns named: what goes in, what is to come out, whose each row is.

    `inputs` is a column of images or arrays, or a list of columns of numbers and words; for these, for `categorical`
    and for how the goal is told from the target see the source csv. Without a target, `inputs` is a column of text
    whose next word is predicted: sequences of `length` words, a `vocabulary` of the commonest.
    """
    if goal is not None:
        check_choice("goal", goal, get_args(TableGoal))
    parts = [_checked(part) for part in (dataset, test) if part is not None]
    chosen = [inputs] if isinstance(inputs, str) else list(inputs)
    columns = [*chosen, *(column for column in (target, client) if column is not None)]
    names = [name] if test is None else [f"{name} (train)", f"{name} (test)"]
    origin = Origin(tuple((one, len(part)) for one, part in zip(names, parts, strict=True)))
    check_columns(origin, set.intersection(*(set(part.column_names) for part in parts)), columns)
    feature = parts[0].features[chosen[0]] if chosen else None
    if target is None:
        if len(chosen) != 1 or not is_text(feature):
            raise InvalidConfig("Without a target the next word is predicted: give one column of text as inputs.")
        check_count("length", length)
        check_count("vocabulary", vocabulary)
        clients = None if client is None else _table(parts, names, [client])
        return read_texts(parts, chosen[0], clients, client, length, vocabulary)
    use = Use(target=target, client=client, features=chosen, categorical=categorical, goal=goal)
    num_test = 0 if test is None else len(test)
    if len(chosen) == 1 and (is_image(feature) or is_array(feature)):
        table = _table(parts, names, columns[1:])
        read = read_images if is_image(feature) else read_arrays
        held = read(parts, chosen[0], origin)
        targets = _targets(table, use, parts[0].features[target])
        made = rows_dataset("hub", held, targets, use.clients_of(table), num_test=num_test)
        return replace(made, prepare=Scaled()) if is_image(feature) else made
    table = _table(parts, names, columns)
    features, targets = use.features_of(table), _targets(table, use, parts[0].features[target])
    return table_dataset("hub", features, targets, use.clients_of(table), num_test=num_test)


def _fetched(name: str, config: str | None, split: str) -> Any:
    datasets = optional_package("datasets", WHAT)
    try:
        return datasets.load_dataset(name, config, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        remedy = "Check the name, the split and the connection; offline, only what was fetched before can be had"
        raise InvalidData(f"The data set '{name}' cannot be had from the hub: {reason}. {remedy}.") from None


def _checked(dataset: Any) -> Any:
    datasets = optional_package("datasets", WHAT)
    if isinstance(dataset, datasets.DatasetDict):
        known = ", ".join(map(str, dataset))
        raise InvalidData(f"This data set has splits ({known}): give one of them, such as dataset['train'].")
    if not isinstance(dataset, datasets.Dataset):
        raise InvalidData(f"A {type(dataset).__name__} is no datasets.Dataset: give one that is held, not a stream.")
    if not len(dataset):
        raise InvalidData("The data set has no rows: give one that has some.")
    return dataset


def _table(parts: Sequence[Any], names: Sequence[str], columns: Sequence[str]) -> ArrowTable:
    chosen = list(dict.fromkeys(columns))
    return arrow_table([part.select_columns(chosen).with_format("arrow")[:] for part in parts], names)


def _targets(table: ArrowTable, use: Use, feature: Any) -> Targets:
    """As of any table, but a column of labels knows the names of its classes."""
    column = table.target(use.target, use.goal)
    names = getattr(feature, "names", None)
    if not names or use.goal == "regression":
        return targets_of(column, table.origin, use.goal)
    unknown = np.flatnonzero(~((column.values >= 0) & (column.values < len(names))))
    if len(unknown):
        row = table.origin.row(int(unknown[0]))
        raise InvalidData(f"{row}: the target, column '{use.target}', has no label. Give one, or drop the row.")
    return Targets(torch.from_numpy(column.values.astype(np.int64)), CLASSIFICATION, tuple(map(str, names)))
