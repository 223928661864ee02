"""Tables 1 and 2: accuracy by degree of personalisation, and on alphabets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import pstdev
from typing import Any

from plures.papers.blocks import Block, Grid
from plures.papers.cells import Cell
from plures.papers.outcomes import Outcome
from plures.papers.pflego.settings import DEGREES, images, omniglot
from plures.papers.published import load
from plures.papers.reading import Read, entry, grid_rows, last, tail
from plures.papers.recipe import Found, Scale

PUBLISHED = load("pflego")
METHODS = {"PFLEGO": "pflego", "FedPer": "fedper", "FedAvg": "fedavg"}
OTHERS = {
    "FedRep": "fedrep",
    "FedBABU": "fedbabu",
    "FedProx": "fedprox",
    "Ditto": "ditto",
    "FedPer": "fedper",
    "FedAvg": "fedavg",
    "FedRecon": "fedrecon",
    "PFLEGO": "pflego",
}
COHORT_METRIC = "sampled/post_local/test/accuracy"
COHORT = tail(COHORT_METRIC)
"""What the authors' code reports: the cohort's own models right after training."""
ALPHABETS = tail(COHORT_METRIC, until=1000)
"""Of alphabets: "the last 10 global rounds of the first 1000", of 5,000."""
GLOBAL_FEDAVG = "FedAvg, global labels"
SHARED_KINDS = ("fedavg", "fedprox", "fedbabu")


def sources(scale: Scale) -> tuple[str, ...]:
    """EMNIST is not at hand: UNIPEN's characters, of as many classes, stand in for it."""
    return ("mnist", "fashion-mnist", "cifar-10", "emnist" if scale == "full" else "unipen")


def image_cell(source: str, degree: str, row: str, scale: Scale) -> Cell:
    method = METHODS.get(row, "fedavg")
    space = "global" if row == GLOBAL_FEDAVG else "local"
    most = 1 if source in ("cifar-10", "emnist", "unipen") else None
    return Cell(
        row=row, column=f"{source}, {degree}", table=images(source, degree, method, scale, space), most_seeds=most
    )


def image_cells(scale: Scale, wanted: tuple[str, ...] | None = None) -> list[Cell]:
    """With all classes everywhere, the two label spaces are one."""
    return [
        image_cell(source, degree, row, scale)
        for source in wanted or sources(scale)
        for degree in DEGREES
        for row in (*METHODS, GLOBAL_FEDAVG)
        if row != GLOBAL_FEDAVG or (degree != "none" and source in ("mnist", "fashion-mnist"))
    ]


def everybody(outcome: Any) -> float:
    """All clients with the models they have, nothing trained for the occasion: personal ones or the shared one."""
    kind = "global" if outcome.experiment["method"] in SHARED_KINDS else "personal"
    return last(f"{kind}/test/accuracy")(outcome)


def show_table_1(found: Found) -> list[Block]:
    cells = image_cells(found.scale)
    columns = list(dict.fromkeys(cell.column for cell in cells))
    published = {row: printed_row(row, found.scale) for row in PUBLISHED["table-1"]}
    blocks: list[Block] = []
    for title, read, known in (
        ("Test accuracy of the cohort right after its training (E3), mean of the last 10 rounds, %", COHORT, published),
        ("How far that moves: standard deviation over the last 10 rounds of a run", moved, None),
        ("Test accuracy of all clients (E2; FedAvg: E1), last round, %", everybody, None),
    ):
        for source in sources(found.scale):
            own = [column for column in columns if column.startswith(f"{source},")]
            rows = grid_rows(found, [cell for cell in cells if cell.column in own], read, own, known)
            blocks.append(Grid(title=f"{source}. {title}", corner="method", columns=own, rows=rows))
    return blocks


def moved(outcome: Outcome) -> float:
    """The papers' own ± is of one run, over its last rounds."""
    values = outcome.tail_values(COHORT_METRIC)
    return 100 * pstdev(values) if len(values) > 1 else math.nan


def printed_row(row: str, scale: Scale) -> dict[str, str]:
    """Of Table 1; EMNIST's numbers stand beside UNIPEN's."""
    swap = "unipen" if scale != "full" else "emnist"
    before = PUBLISHED["p2022"]["table-1"].get(row, {})
    return {
        column.replace("emnist", swap, 1) if column.startswith("emnist") else column: printed(
            numbers, before.get(column)
        )
        for column, numbers in PUBLISHED["table-1"][row].items()
    }


def printed(numbers: Sequence[float], before: Sequence[float] | None = None) -> str:
    """As in 2023, and where 2022 has another number, that too."""
    value, off = numbers
    told = f"{value:.2f} ± {off:.2f}"
    return told if before is None else f"{told} (2022: {before[0]:.2f})"


def alphabet_cells(scale: Scale) -> list[Cell]:
    return [
        Cell(row=row, column="omniglot", table=omniglot(method, scale), most_seeds=1) for row, method in OTHERS.items()
    ]


def show_table_2(found: Found) -> list[Block]:
    cells = alphabet_cells(found.scale)
    before = PUBLISHED["p2022"]["table-2"]
    known = {row: printed(numbers, before.get(row)) for row, numbers in PUBLISHED["table-2"].items()}
    reads: dict[str, Read] = {"cohort after training (E3)": ALPHABETS, "all clients (E2; shared models: E1)": everybody}
    rows = {
        cell.row: [
            entry(found, cell, read, known.get(cell.row) if read is ALPHABETS else None) for read in reads.values()
        ]
        for cell in cells
    }
    return [Grid(title="Omniglot: test accuracy, %", corner="method", columns=list(reads), rows=rows)]
