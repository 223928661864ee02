"""Figures 1 and 3 to 8 of the FedSpa paper; Figure 2 is a sketch of the method."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from plures.papers.blocks import Block, Entry, Figure, Grid, Series
from plures.papers.cells import Cell
from plures.papers.fedspa.common import ACCURACY, accuracy_grid, curves, final, gigabytes
from plures.papers.fedspa.counts import layer_blocks
from plures.papers.fedspa.runs import (
    PERSONAL_GLOBAL,
    density_cells,
    global_cells,
    mask_cells,
    regrowth_cells,
    sparsity_cells,
    sparsity_of,
    task_cells,
    traffic_cells,
)
from plures.papers.fedspa.settings import DST, FEDAVG, SUB_FEDAVG, TASKS, B, ablated
from plures.papers.reading import entry, last
from plures.papers.recipe import Found

SPARSE = (DST, SUB_FEDAVG)


def show_figure_1(found: Found) -> list[Block]:
    """Accuracy by traffic, where clients differ most."""
    task, cells = ablated(found.scale), traffic_cells(found.scale)
    series: dict[str, Series] = {}
    for method in dict.fromkeys(method_of(one.row) for one in cells):
        own = [one for one in cells if method_of(one.row) == method and found.outcomes(one)]
        points = sorted((mean_of(found, one, gigabytes), mean_of(found, one, final)) for one in own)
        if points:
            series[method] = Series(x=[x for x, _ in points], y=[y for _, y in points])
    rows: dict[str, Sequence[Entry | None]] = {
        told_row(one.row): [entry(found, one, final), entry(found, one, gigabytes)] for one in cells
    }
    title = f"Accuracy by traffic, {task.told}, {task.column(B)}"
    return [
        Figure(name="", title=title, x="GB sent, four bytes a value", y=ACCURACY, panels={task.column(B): series}),
        Grid(title=title, columns=["accuracy, %", "GB"], rows=rows, digits=3),
    ]


def method_of(row: str) -> str:
    return row.partition(", ")[0]


def told_row(row: str) -> str:
    """Sparse methods with their sparsity, as the numbers of the paper's figure."""
    method = method_of(row)
    return f"{method}, sparsity {sparsity_of(row):g}" if method in SPARSE else method


def mean_of(found: Found, cell: Cell, read: object) -> float:
    assert callable(read)
    return fmean(read(outcome) for outcome in found.outcomes(cell).values())


def show_figure_3(found: Found) -> list[Block]:
    return [
        curves(found, name, f"Accuracy over rounds, {task.told}", task, task_cells(task))
        for name, task in TASKS[found.scale].items()
    ]


def show_figure_4(found: Found) -> list[Block]:
    task = ablated(found.scale)
    return [curves(found, "", f"FedSpa (DST) by sparsity, {task.told}", task, sparsity_cells(found.scale))]


def show_figure_5(found: Found) -> list[Block]:
    task = ablated(found.scale)
    title = f"FedSpa (DST) by ERK and uniformly, {task.told}"
    return [curves(found, "", title, task, density_cells(found.scale)), *layer_blocks()]


def show_figure_6(found: Found) -> list[Block]:
    return compared(found, "Beginning with the same or with different masks", mask_cells(found.scale))


def show_figure_7(found: Found) -> list[Block]:
    return compared(found, "Regrowth by gradient or at random", regrowth_cells(found.scale))


def compared(found: Found, title: str, cells: Sequence[Cell]) -> list[Block]:
    task = ablated(found.scale)
    title = f"{title}, {task.told}"
    return [curves(found, "", title, task, cells), accuracy_grid(found, f"{title}: final accuracy, %", cells, task)]


def show_figure_8(found: Found) -> list[Block]:
    task, cells = ablated(found.scale), global_cells(found.scale)
    metrics = {
        f"{DST}, personal models": (DST, "personal/test/accuracy"),
        PERSONAL_GLOBAL: (DST, "global/test/accuracy"),
        f"{FEDAVG}, global model": (FEDAVG, "global/test/accuracy"),
    }
    places = {(one.row, one.column): one for one in cells}
    rows = {
        label: [entry(found, places[row, column], last(metric, "mean")) for column in task.columns]
        for label, (row, metric) in metrics.items()
    }
    title = f"The global model and the personal ones, {task.told}"
    columns = [task.column(column) for column in task.columns]
    return [
        curves(found, "", title, task, cells, metrics),
        Grid(title=f"{title}: final accuracy, %", columns=columns, rows=rows),
    ]
