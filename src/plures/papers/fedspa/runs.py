"""Which cells each item of the FedSpa paper is made of."""

from __future__ import annotations

from plures.papers.cells import Cell
from plures.papers.fedspa.settings import (
    DST,
    FEDAVG,
    IID,
    LOCAL,
    METHODS,
    RSM,
    SPARSITIES,
    SPARSITY,
    SUB_FEDAVG,
    TASKS,
    B,
    Task,
    ablated,
    cell,
    sparse_cell,
)
from plures.papers.recipe import Scale

PERSONAL_GLOBAL = "FedSpa (DST), global model"
GRADIENT, RANDOM = "gradient", "random"
ERK, UNIFORM = "ERK", "Uniform"
SAME, DIFFERENT = "same masks", "different masks"


def task_cells(task: Task) -> list[Cell]:
    """The main comparison on one task."""
    return [cell(task, method, column) for method in METHODS for column in task.columns]


def main_cells(scale: Scale) -> list[Cell]:
    return [one for task in TASKS[scale].values() for one in task_cells(task)]


def counted_cells(scale: Scale) -> list[Cell]:
    """Table 2 is about CIFAR; whatever stands for it has targets, and Local is left out."""
    tasks = [task for task in TASKS[scale].values() if task.targets]
    return [one for task in tasks for one in task_cells(task) if one.row != LOCAL]


def sparsity_cells(scale: Scale) -> list[Cell]:
    task = ablated(scale)
    return [sparse_cell(task, sparsity, column) for sparsity in SPARSITIES[scale] for column in task.columns]


def density_cells(scale: Scale) -> list[Cell]:
    """How sparse each layer is."""
    task = ablated(scale)
    by_erk = [cell(task, DST, column, row=ERK) for column in task.columns]
    return by_erk + [cell(task, DST, column, row=UNIFORM, densities="uniform") for column in task.columns]


def mask_cells(scale: Scale) -> list[Cell]:
    """Which masks clients begin with."""
    task, cells = ablated(scale), list[Cell]()
    for method in (DST, RSM):
        cells += [cell(task, method, column, row=f"{method}, {SAME}") for column in task.columns]
        for column in task.columns:
            cells.append(cell(task, method, column, row=f"{method}, {DIFFERENT}", same_masks=False))
    return cells


def regrowth_cells(scale: Scale) -> list[Cell]:
    task = ablated(scale)
    gradient = [cell(task, DST, column, row=GRADIENT) for column in task.columns]
    return gradient + [cell(task, DST, column, row=RANDOM, regrow="random") for column in task.columns]


def global_cells(scale: Scale) -> list[Cell]:
    task = ablated(scale)
    return [cell(task, method, column) for method in (DST, FEDAVG) for column in task.columns]


def timed_cells(scale: Scale) -> list[Cell]:
    """One of each task; how data are dealt makes no difference to seconds."""
    return [cell(task, DST, IID, row=f"{name} (CPU)") for name, task in TASKS[scale].items()]


def traffic_cells(scale: Scale) -> list[Cell]:
    """Figure 1: all methods where clients differ most, the sparse ones at several sparsities."""
    task = ablated(scale)
    pruned = () if scale == "micro" else (0.2, 0.8)  # in few visits no client gets far
    return [
        *(cell(task, method, B) for method in METHODS if method != DST),
        *(cell(task, SUB_FEDAVG, B, row=f"{SUB_FEDAVG}, {one:g}", target_density=round(1 - one, 6)) for one in pruned),
        *(cell(task, DST, B, row=f"{DST}, {one:g}", density=round(1 - one, 6)) for one in SPARSITIES[scale]),
    ]


def sparsity_of(row: str) -> float:
    """Of a row of Figure 1."""
    return float(row.rpartition(", ")[2]) if ", " in row else SPARSITY
