"""Two tables with many small groups: ratings of lectures by student, marks of pupils by class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from plures.data.datasets import DataSet
from plures.data.sources.columns import check_columns, clients_of, targets_of
from plures.data.sources.csv_files import read_csv
from plures.data.sources.finding import find_form, given_path
from plures.data.sources.reading import check_choice
from plures.data.sources.registry import source
from plures.data.tables import table_dataset

TableName = Literal["insteval", "nlschools"]


class Form(NamedTuple):
    """What the columns of a table are."""

    target: str
    client: str
    numbers: tuple[str, ...]
    words: tuple[str, ...]


FORMS: Mapping[str, Form] = {
    "insteval": Form("y", "s", ("studage", "lectage", "service"), ("dept",)),
    "nlschools": Form("lang", "class", ("IQ", "GS", "SES", "COMB"), ()),
}

LECTURER = "d"


@source(
    "grouped-tables",
    about="73,421 ratings of lectures by 2,972 students, or marks of 2,287 pupils in 133 classes, to predict",
    files=("grouped-tables/insteval.csv, or grouped-tables/nlschools.csv for the table of that name",),
)
def grouped_tables(
    *, table: TableName = "insteval", path: str | Path | None = None, lecturers: bool = False
) -> DataSet:
    """insteval: how students rate lectures, from 1 to 5; nlschools: the mark in a test of Dutch.

    Clients are students or classes. With `lecturers`, the 1,128 of insteval are features too, one-hot; without, only
    the student's and the lecture's age, the department and whether the lecture was held for another one.
    """
    check_choice("table", table, get_args(TableName))
    pattern = f"grouped-tables/{table}.csv*"
    found = find_form("grouped-tables", {"csv": (pattern,)})[1][0] if path is None else given_path(path)
    form, read = FORMS[table], read_csv(found)
    words = (*form.words, LECTURER) if lecturers and table == "insteval" else form.words
    check_columns(read.origin, read.names, [form.client, *form.numbers, *words, form.target])
    again = "fetch the file again"
    columns = [read.feature(name, words=name in words, otherwise=again) for name in (*form.numbers, *words)]
    targets = targets_of(read.target(form.target, "regression"), read.origin, "regression")
    return table_dataset(table, columns, targets, clients_of(read.words(form.client), read.origin))
