"""Reading the FedSpa paper's numbers and this one's outcomes alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from plures.papers import published
from plures.papers.blocks import Figure, Grid, Series
from plures.papers.cells import Cell
from plures.papers.fedspa.settings import COLUMNS, EPOCHS, SCALED, TASKS, Task, ablated
from plures.papers.outcomes import Outcome
from plures.papers.reading import grid_rows, line
from plures.papers.recipe import Found, Scale

ROUNDS, ACCURACY = "communication rounds", "test accuracy, %"
SHARED_METHODS = ("fedavg", "subsampling")
"""Whose model is the same for all clients."""
Printed = Mapping[str, Sequence[Any]]


@cache
def printed() -> dict[str, Any]:
    """Every published number."""
    return published.load("fedspa")


def headline(outcome: Outcome) -> str:
    return metric_of(str(outcome.experiment["method"]))


def metric_of(method: str) -> str:
    """The accuracy that a method is judged by."""
    return f"{'global' if method in SHARED_METHODS else 'personal'}/test/accuracy"


def final(outcome: Outcome) -> float:
    """The mean over clients in the last round, as the paper reports."""
    return 100 * outcome.last(headline(outcome), "mean")


def gigabytes(outcome: Outcome) -> float:
    """As the paper counts: four bytes for each value, masks for nothing."""
    return 4e-9 * float(outcome.cost["values_down"] + outcome.cost["values_up"])


def with_spread(number: Sequence[float]) -> str:
    """[92.2, 0.1] as printed."""
    return f"{number[0]:g} ± {number[1]:g}"


def by_column(rows: Printed) -> dict[str, dict[str, Any]]:
    """Lists over IID, A, B as the grids want them."""
    return {
        name: {
            column: with_spread(value) if isinstance(value, list) else value
            for column, value in zip(COLUMNS, values, strict=True)
        }
        for name, values in rows.items()
    }


def accuracy_grid(
    found: Found, title: str, cells: Sequence[Cell], task: Task | None, rows: Printed | None = None, *, note: str = ""
) -> Grid:
    """Final accuracies by the way the data are dealt, those that were published beside them."""
    columns = COLUMNS if rows or task is None else task.columns
    return Grid(
        title=title,
        columns=[column if task is None else task.column(column) for column in columns],
        rows=grid_rows(found, cells, final, columns, by_column(rows or {})),
        note=note,
    )


def curves(
    found: Found,
    name: str,
    title: str,
    task: Task,
    cells: Sequence[Cell],
    metrics: Mapping[str, tuple[str, str]] | None = None,
) -> Figure:
    """Accuracy over rounds, a panel for each way of dealing; `metrics` has (row, metric) by the name of a line."""
    panels: dict[str, dict[str, Series]] = {}
    for column in task.columns:
        own = {cell.row: cell for cell in cells if cell.column == column}
        wanted = metrics or {row: (row, metric_of(cell.table["method"])) for row, cell in own.items()}
        drawn = {label: line(found, own[row], metric) for label, (row, metric) in wanted.items() if row in own}
        panels[task.column(column)] = {label: one for label, one in drawn.items() if one is not None}
    return Figure(name=name, title=title, x=ROUNDS, y=ACCURACY, panels=panels)


def told(task: Task) -> str:
    """A setting in a line."""
    size = "all examples" if task.examples is None else told_examples(task.examples)
    dealt = ", ".join(task.column(column) for column in task.columns)
    return (
        f"{task.told}: {size}, {task.clients} clients, {task.cohort} in a round, {task.rounds} rounds, {EPOCHS} "
        f"epochs in batches of {task.batch}; {dealt}."
    )


def told_examples(examples: int | float) -> str:
    return f"{examples:,} examples" if isinstance(examples, int) else f"{100 * examples:g} % of the examples"


def main_settings() -> dict[Scale, str]:
    return {scale: " ".join(told(task) for task in tasks.values()) for scale, tasks in TASKS.items()}


def ablation_settings() -> dict[Scale, str]:
    return {scale: told(ablated(scale)) for scale in TASKS}


NOT_HERE: dict[Scale, str] = {"full": SCALED}
