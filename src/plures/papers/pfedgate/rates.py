"""How rates at the scale small were chosen: short runs, by accuracy on validation data. Not in the paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from plures.papers.blocks import Block, Entry, Grid
from plures.papers.cells import Cell
from plures.papers.pfedgate import settings as s
from plures.papers.pfedgate.columns import Column, columns
from plures.papers.reading import entry, last
from plures.papers.recipe import Found, Scale

TRIED_ROUNDS = 25
PLAIN_RATES = (0.01, 0.03, 0.1, 0.3)
"""Of FedAvg and of clients alone; the paper looked from 0.005 to 0.5."""
GATE_RATES = (
    (0.03, 0.05),
    (0.03, 1.5),
    (0.1, 0.1),
    (0.3, 0.1),
    (0.3, 0.5),
    (0.3, 1.5),
    (0.3, 5.0),
    (0.3, 15.0),
    (0.5, 0.5),
    (0.5, 1.5),
    (1.0, 0.5),
    (1.0, 1.5),
    (1.0, 5.0),
    (2.0, 1.5),
)
"""Of network and gate: those of the paper's Table 4, and larger ones; 15 is the largest that was tried for a gate."""
DENSITY = 0.5
PAIR = tuple[float, float]


def rate_columns(scale: Scale) -> list[Column]:
    return columns(scale, "EMNIST", "CIFAR-10") if scale == "small" else []


def short(column: Column, **rates: object) -> Column:
    """A quarter of the rounds at a steady rate, looked at once."""
    every = {"every": TRIED_ROUNDS, "often": TRIED_ROUNDS}
    return replace(column, rounds=TRIED_ROUNDS, falling=False, **every, **rates)  # type: ignore[arg-type]


def plain_cell(column: Column, lr: float) -> Cell:
    return replace(s.fedavg(short(column, lr=lr), f"{s.FEDAVG}, {lr:g}"), most_seeds=1)


def local_cell(column: Column, lr: float) -> Cell:
    cell = s.baseline(short(column, own_lr=lr), s.LOCAL)
    return replace(cell, row=f"{s.LOCAL}, {lr:g}", most_seeds=1)


def gate_cell(column: Column, rates: PAIR) -> Cell:
    row = f"{s.gated(DENSITY)}, {rates[0]:g} and {rates[1]:g}"
    return replace(s.pfedgate(short(column, gate_rates={f"{DENSITY:g}": rates}), DENSITY, row), most_seeds=1)


def tried(column: Column) -> Iterator[tuple[Cell, str]]:
    """Each with the model that it is judged by."""
    for lr in PLAIN_RATES:
        yield plain_cell(column, lr), s.SHARED
    for lr in PLAIN_RATES:
        yield local_cell(column, lr), s.OWN
    for rates in GATE_RATES:
        yield gate_cell(column, rates), s.OWN


def rate_cells(scale: Scale) -> list[Cell]:
    return [cell for column in rate_columns(scale) for cell, _ in tried(column)]


def reached(found: Found, cell: Cell, model: str) -> Entry:
    return entry(found, cell, last(f"{model}/validation/accuracy"))


def best(found: Found, column: Column) -> tuple[float, float, PAIR]:
    """The rates of FedAvg, of clients alone, and of network and gate; what has not run is not among them."""

    def score(cell: Cell, model: str) -> float:
        measured = reached(found, cell, model).measured
        return measured if isinstance(measured, float) else -1.0

    return (
        max(PLAIN_RATES, key=lambda lr: score(plain_cell(column, lr), s.SHARED)),
        max(PLAIN_RATES, key=lambda lr: score(local_cell(column, lr), s.OWN)),
        max(GATE_RATES, key=lambda pair: score(gate_cell(column, pair), s.OWN)),
    )


def show_rates(found: Found) -> list[Block]:
    shown = rate_columns(found.scale)
    rows: dict[str, list[Entry | None]] = {}
    for column in shown:
        for cell, model in tried(column):
            rows.setdefault(cell.row, []).append(reached(found, cell, model))
    note = (
        f"Accuracy on validation data after {TRIED_ROUNDS} rounds, after averaging. The best of each kind are the "
        "rates of all other items: FedAvg's of methods that average all that they train, Local's of those that keep "
        "weights of their own, and those of s = 0.5 of every s."
    )
    return [Grid(title="Rates", corner="rates", columns=[column.title for column in shown], rows=rows, note=note)]
