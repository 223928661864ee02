"""Heart disease: patients of four hospitals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from plures.core.goals import CLASSIFICATION
from plures.data.datasets import DataSet
from plures.data.sources.columns import TableGoal, check_columns, clients_of, targets_of
from plures.data.sources.csv_files import TextTable, read_csv
from plures.data.sources.finding import find_form, given_path
from plures.data.sources.reading import check_choice
from plures.data.sources.registry import source
from plures.data.tables import Column, Targets, table_dataset

FEATURES = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"),
    *("thalach", "exang", "oldpeak", "slope", "ca", "thal"),
)

FILE = "heart-disease/heart-disease.csv*"

NEVER_ZERO = ("trestbps", "chol")
"""Blood pressure and cholesterol: where they are 0, which is often in two of the hospitals, they were not measured."""


@source(
    "heart-disease",
    about="920 patients with 13 features, healthy or diseased; clients are four hospitals",
    files=("heart-disease/heart-disease.csv",),
)
def heart_disease(*, path: str | Path | None = None, goal: TableGoal = "classification") -> DataSet:
    """Classes are num = 0 and num > 0; for regression the target is num itself, from 0 to 4.

    All features are numbers: standardised, gaps filled with the mean and marked, by the training rows of all hospitals.
    """
    check_choice("goal", goal, get_args(TableGoal))
    found = find_form("heart-disease", {"csv": (FILE,)})[1][0] if path is None else given_path(path)
    table = read_csv(found)
    check_columns(table.origin, table.names, ["hospital", *FEATURES, "num"])
    stage = targets_of(table.target("num", "regression"), table.origin, "regression")
    classes = Targets((stage.values > 0).to(torch.int64), CLASSIFICATION, ("healthy", "diseased"))
    return table_dataset(
        "heart-disease",
        [_measured(table, name) for name in FEATURES],
        stage if goal == "regression" else classes,
        clients_of(table.words("hospital"), table.origin),
    )


def _measured(table: TextTable, name: str) -> Column:
    column = table.feature(name, words=False, otherwise="fetch the file again")
    if name not in NEVER_ZERO:
        return column
    return replace(column, values=np.where(column.values == 0, np.nan, column.values))
