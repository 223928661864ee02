"""Figures of the PFLEGO papers: curves by degree, steps, rates and participation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plures.papers.blocks import Block, Figure
from plures.papers.cells import Cell
from plures.papers.pflego.settings import DEGREES, participation, rates, steps
from plures.papers.pflego.tables import GLOBAL_FEDAVG, METHODS, alphabet_cells, image_cells, sources
from plures.papers.reading import lines
from plures.papers.recipe import Found, Scale

TAUS = (5, 10, 25, 50, 75, 100)
BETAS, RHOS = (0.001, 0.003, 0.005, 0.007, 0.009), (0.001, 0.002, 0.003)
SHARES = (20, 40, 60, 100)
TRAIN_LOSS, TRAIN, TEST = (f"sampled/post_local/{one}" for one in ("train/loss", "train/accuracy", "test/accuracy"))

Panels = Mapping[str, Mapping[str, Cell]]


def curves(found: Found, name: str, title: str, panels: Panels, metric: str) -> Figure:
    """One metric over rounds: the cohort right after its training, as in the papers."""
    is_loss = metric.endswith("loss")
    return Figure(
        name=name,
        title=title,
        x="round",
        y="loss" if is_loss else "accuracy, %",
        panels={panel: lines(found, cells, metric, times=1 if is_loss else 100) for panel, cells in panels.items()},
        log_y=is_loss,
    )


def by_degree(source: str) -> tuple[Callable[[Scale], list[Cell]], Callable[[Found], list[Block]]]:
    """Cells and figure for one data set: a panel for each degree."""

    def named(scale: Scale) -> str:
        return sources(scale)[-1] if source == "emnist" else source

    def cells(scale: Scale) -> list[Cell]:
        return [cell for cell in image_cells(scale, (named(scale),)) if cell.row != GLOBAL_FEDAVG]

    def show(found: Found) -> list[Block]:
        panels = {
            degree: {cell.row: cell for cell in cells(found.scale) if cell.column.endswith(f" {degree}")}
            for degree in DEGREES
        }
        where = named(found.scale)
        return [
            curves(found, "loss", f"{where}: training loss of the cohort", panels, TRAIN_LOSS),
            curves(found, "accuracy", f"{where}: test accuracy of the cohort", panels, TEST),
        ]

    return cells, show


def show_alphabets(found: Found) -> list[Block]:
    return alphabet_figures(found, tuple(cell.row for cell in alphabet_cells(found.scale)))


def pair_cells(scale: Scale) -> list[Cell]:
    return [cell for cell in alphabet_cells(scale) if cell.row in ("PFLEGO", "FedRecon")]


def show_pair(found: Found) -> list[Block]:
    return alphabet_figures(found, ("PFLEGO", "FedRecon"))


def alphabet_figures(found: Found, rows: tuple[str, ...]) -> list[Block]:
    cells = {cell.row: cell for cell in alphabet_cells(found.scale) if cell.row in rows}
    metrics = {"loss": TRAIN_LOSS, "train": TRAIN, "test": TEST}
    titles = {"loss": "training loss", "train": "training accuracy", "test": "test accuracy"}
    return [
        curves(found, name, f"Omniglot: {titles[name]} of the cohort", {"": cells}, metric)
        for name, metric in metrics.items()
    ]


def steps_cells(scale: Scale) -> list[Cell]:
    return [
        Cell(row=row, column=f"tau {tau}", table=steps(method, tau, scale), most_seeds=1)
        for tau in TAUS
        for row, method in (("PFLEGO", "pflego"), ("FedRecon", "fedrecon"))
    ]


def show_steps(found: Found) -> list[Block]:
    cells = steps_cells(found.scale)
    panels = {f"tau {tau}": {cell.row: cell for cell in cells if cell.column == f"tau {tau}"} for tau in TAUS}
    return [
        curves(found, "loss", "Training loss, 4 to 28 clients in a round", panels, TRAIN_LOSS),
        curves(found, "accuracy", "Test accuracy, 4 to 28 clients in a round", panels, TEST),
    ]


def rates_cells(scale: Scale) -> list[Cell]:
    return [
        Cell(row=f"beta {beta}", column=f"rho {rho}", table=rates(beta, rho, scale), most_seeds=1)
        for rho in RHOS
        for beta in BETAS
    ]


def show_rates(found: Found) -> list[Block]:
    cells = rates_cells(found.scale)
    panels = {f"rho {rho}": {cell.row: cell for cell in cells if cell.column == f"rho {rho}"} for rho in RHOS}
    return [curves(found, "loss", "PFLEGO: training loss by the clients' rate", panels, TRAIN_LOSS)]


def participation_cells(scale: Scale) -> list[Cell]:
    return [
        Cell(row=row, column=f"{share} %", table=participation(method, share, scale), most_seeds=1)
        for share in SHARES
        for row, method in METHODS.items()
    ]


def show_participation(found: Found) -> list[Block]:
    cells = participation_cells(found.scale)
    panels = {f"{share} %": {cell.row: cell for cell in cells if cell.column == f"{share} %"} for share in SHARES}
    return [
        curves(found, "loss", "Training loss by clients in a round", panels, TRAIN_LOSS),
        curves(found, "accuracy", "Test accuracy by clients in a round", panels, TEST),
    ]
