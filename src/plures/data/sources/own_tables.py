"""A user's own tables: csv and parquet files, with a column that says whose each row is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, get_args

from plures.core.errors import InvalidConfig, InvalidData
from plures.data.datasets import DataSet
from plures.data.sources.arrow import ArrowTable
from plures.data.sources.columns import Origin, TableGoal, check_columns, clients_of, targets_of
from plures.data.sources.csv_files import read_csv
from plures.data.sources.finding import given_path
from plures.data.sources.reading import check_choice, optional_package, reading, wrong
from plures.data.sources.registry import source
from plures.data.tables import NO_CLIENTS, Clients, Column, table_dataset


class Table(Protocol):
    """Columns by name, in the form that their use asks for."""

    @property
    def origin(self) -> Origin: ...

    @property
    def names(self) -> list[str]: ...

    def feature(self, name: str, *, words: bool | None) -> Column: ...

    def target(self, name: str, goal: TableGoal | None) -> Column: ...

    def words(self, name: str) -> Column: ...


@dataclass(frozen=True, kw_only=True)
class Use:
    """Which columns of a table are used for what."""

    target: str
    client: str | None = None
    features: Sequence[str] | None = None
    """None: all the others."""
    categorical: Sequence[str] | None = None
    """Columns of words; None: told by type or content."""
    goal: TableGoal | None = None

    def __post_init__(self) -> None:
        if self.goal is not None:
            check_choice("goal", self.goal, get_args(TableGoal))

    def features_of(self, table: Table) -> list[Column]:
        """The columns that are features, once all that are asked for are known to be there."""
        apart = [self.target] if self.client is None else [self.target, self.client]
        others = [column for column in table.names if column not in apart]
        features = others if self.features is None else _listed(self.features)
        check_columns(table.origin, table.names, [*apart, *features, *_listed(self.categorical or ())])
        if not features:
            raise InvalidConfig("There are no features: name some columns besides target and client.")
        if self.target in features:
            raise InvalidConfig(f"The target '{self.target}' is among the features: take it out of them.")
        words = self.categorical
        return [table.feature(name, words=None if words is None else name in words) for name in features]

    def clients_of(self, table: Table) -> Clients:
        return NO_CLIENTS if self.client is None else clients_of(table.words(self.client), table.origin)


@source(
    "csv",
    about="your own table, to classify or to predict a number; clients by a column of it",
    files=("path: a .csv file whose first line names the columns",),
)
def csv_table(
    path: str | Path,
    target: str,
    *,
    client: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    goal: TableGoal | None = None,
    test: str | Path | None = None,
    delimiter: str = ",",
) -> DataSet:
    """Rows of a file, and of a second one that are the data set's own `test` rows.

    Without `features`, all columns but target and client are features. Columns of words are one-hot; `categorical`
    lists them all, without it they are told by their content. A target of words or whole numbers is a class, one of
    other numbers is predicted as a number, unless `goal` decides it. Missing: empty, ?, NA, N/A, NaN, null, None.
    """
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise InvalidConfig(f"delimiter is {delimiter!r}: give one sign, such as ',' or ';'.")
    table = read_csv(*(given_path(one) for one in (path, test) if one is not None), delimiter=delimiter)
    use = Use(target=target, client=client, features=features, categorical=categorical, goal=goal)
    return assembled("csv", table, use, has_test=test is not None)


@source(
    "parquet",
    about="your own table, to classify or to predict a number; clients by a column of it",
    files=("path: a .parquet file",),
)
def parquet_table(
    path: str | Path,
    target: str,
    *,
    client: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    goal: TableGoal | None = None,
    test: str | Path | None = None,
) -> DataSet:
    """As csv, but what is a number and what a word is known from the types; a boolean target is a class."""
    parquet = optional_package("pyarrow.parquet", "A parquet file")
    pyarrow = optional_package("pyarrow", "A parquet file")
    paths = [given_path(one) for one in (path, test) if one is not None]
    tables = []
    for one in paths:
        with reading(one, pyarrow.ArrowException):
            tables.append(parquet.read_table(one))
        if tables[-1].column_names != tables[0].column_names:
            raise wrong(one, f"has other columns than {paths[0]}", "Give both files the same columns")
    table = arrow_table(tables, [str(one) for one in paths])
    use = Use(target=target, client=client, features=features, categorical=categorical, goal=goal)
    return assembled("parquet", table, use, has_test=test is not None)


def arrow_table(tables: Sequence[Any], names: Sequence[str]) -> ArrowTable:
    """Some tables of pyarrow, one after another."""
    pyarrow = optional_package("pyarrow", "A parquet file")
    origin = Origin(tuple((name, len(table)) for name, table in zip(names, tables, strict=True)))
    try:
        return ArrowTable(pyarrow.concat_tables(tables, promote_options="permissive"), origin)
    except pyarrow.ArrowException as error:
        raise InvalidData(f"{origin} have columns of different types ({error}): give them the same ones.") from None


def assembled(name: str, table: Table, use: Use, *, has_test: bool = False) -> DataSet:
    """A data set from the columns of a table; with a test, the last file's rows are its own test rows."""
    columns = use.features_of(table)
    targets = targets_of(table.target(use.target, use.goal), table.origin, use.goal)
    num_test = table.origin.files[-1][1] if has_test else 0
    return table_dataset(name, columns, targets, use.clients_of(table), num_test=num_test)


def _listed(names: Sequence[str]) -> list[str]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidConfig(f"Columns are {names!r}: give a list of names, such as ['age', 'sex'].")
    return list(names)
