"""Reads the examples of one client from a file: npz, safetensors or csv."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from plures.core.errors import InvalidConfig, InvalidData, did_you_mean
from plures.data import Federation
from plures.data.sources.columns import from_numbers, is_missing
from plures.data.sources.csv_files import TextTable, read_csv
from plures.data.sources.reading import read_npz, reading, wrong
from plures.data.tables import Features
from plures.recipes.preparations import columns_of

NAMES = (("inputs", "targets"), ("x", "y"))
"""What the two arrays of a file may be called."""
SHOWN = 5
"""Columns that are named where no name is near to a wrong one; and the last one, which is the target by default."""
UNKNOWN = -1.0
"""The number of a word that no training row of the run has."""


class Given(NamedTuple):
    """Examples as a file has them."""

    inputs: Any
    targets: Any


def read_given(path: Path, federation: Federation, target: str | None = None) -> Given:
    """Inputs and targets of a file; `target` names the column of a csv file, by default the last one."""
    if not path.is_file():
        raise InvalidData(f"There is no file {path}. Give an npz, safetensors or csv file with inputs and targets.")
    if path.suffix == ".csv":
        return from_table(read_csv(path), path, federation, target)
    if target is not None:
        raise InvalidConfig(f"--target names a column of a csv file, but {path} has arrays: leave it out.")
    if path.suffix == ".npz":
        return from_npz(path)
    if path.suffix == ".safetensors":
        return from_safetensors(path)
    raise InvalidData(f"{path} is neither npz, safetensors nor csv: save inputs and targets as one of these.")


def from_npz(path: Path) -> Given:
    names = [name for pair in NAMES for name in pair]
    found = read_npz(path, optional=names, remedy="Save inputs and targets, as numbers, with numpy.savez")
    return paired(found, path)


def from_safetensors(path: Path) -> Given:
    with reading(path, SafetensorError, remedy="Save it again"), safe_open(path, "pt") as file:
        known = [name for pair in NAMES for name in pair if name in file.keys()]  # noqa: SIM118 - it is no mapping
        return paired({name: file.get_tensor(name) for name in known}, path)


def paired(found: dict[str, Any], path: Path) -> Given:
    for inputs, targets in NAMES:
        if inputs in found and targets in found:
            return Given(found[inputs], found[targets])
    has = ", ".join(found) or "neither"
    raise wrong(path, f"has no inputs and targets (of these it has: {has})", "Save two arrays by these names")


def from_table(table: TextTable, path: Path, federation: Federation, target: str | None) -> Given:
    """Columns by name where the run's data are a table, else in their order."""
    if federation.goal.name == "next_token":
        raise InvalidData(f"{path} is a table, but the run predicts tokens: give npz or safetensors.")
    target = target or table.names[-1]
    if target not in table.names:
        raise InvalidConfig(f"{path} has no column '{target}'. {columns_told(target, table.names)}")
    absent = [row for row, text in enumerate(table.texts[target], 1) if is_missing(text)]
    if absent:
        raise InvalidData(f"{path}, row {absent[0]}: the target, column '{target}', is missing. Drop the row.")
    others = [name for name in table.names if name != target]
    if isinstance(federation.prepare, Features):
        return Given(held_rows(table, path, others, federation.prepare), list(table.texts[target]))
    columns = [numbers_in(table, name) for name in others]
    if not columns:
        raise InvalidData(f"{path} has one column only. Give the inputs before the target.")
    shape = federation.population.load(0).train.inputs.shape[1:]
    rows = np.column_stack(columns)
    if rows.shape[1] != shape.numel():
        raise InvalidData(
            f"{path} has {rows.shape[1]} columns beside '{target}', but an input of the run has {shape.numel()} "
            f"numbers ({' x '.join(map(str, shape))}). Give one column for each."
        )
    return Given(rows.reshape(-1, *shape), list(table.texts[target]))


def columns_told(word: str, names: Sequence[str]) -> str:
    """The nearest names, else a few in the order of the file, which may have hundreds."""
    near = get_close_matches(word, names, n=3, cutoff=0.5)
    if near:
        return did_you_mean(word, near)
    few = names if len(names) <= SHOWN + 1 else [*names[:SHOWN], "...", names[-1]]
    return f"It has {len(names)} columns: {', '.join(few)}."


def held_rows(table: TextTable, path: Path, names: Sequence[str], features: Features) -> np.ndarray:
    """Rows as the run holds them: its columns in its order, words by their numbers there."""
    wanted = columns_of(features)
    missing = [column["name"] for column in wanted if column["name"] not in names]
    if missing:
        raise InvalidData([f"{path} has no column '{name}', which the run's data have." for name in missing])
    return np.column_stack(
        [numbers_in(table, column["name"]) if "words" not in column else words_in(table, column) for column in wanted]
    )


def numbers_in(table: TextTable, name: str) -> np.ndarray:
    column, bad = from_numbers(name, table.texts[name])
    if len(bad):
        row = int(bad[0])
        text = table.texts[name][row].strip()[:40]
        raise InvalidData(
            f"{table.origin.row(row)}: column '{name}' has '{text}' where it should have a number. Correct it, or drop "
            "the row."
        )
    return column.values


def words_in(table: TextTable, column: dict[str, Any]) -> np.ndarray:
    words = ["" if is_missing(text) else text.strip() for text in table.texts[column["name"]]]
    return np.array([float(column["words"].get(word, UNKNOWN)) for word in words])
