"""Tables 1 and 2 of the pFedGate paper: accuracy of all methods, and gates without their parts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from plures.papers.blocks import Block, Entry, Grid, Words
from plures.papers.cells import Cell
from plures.papers.outcomes import Outcome
from plures.papers.pfedgate import settings as s
from plures.papers.pfedgate.columns import PUBLISHED, Column, columns
from plures.papers.pfedgate.numbers import (
    AFTER_ROUND,
    AFTER_TRAINING,
    at_the_end,
    chosen,
    extra,
    metric_of,
    pair_grid,
)
from plures.papers.reading import entry, last
from plures.papers.recipe import Found, Scale

GATED = tuple(s.MAIN.values())
MAIN_ROWS = (*s.BASELINES, *GATED)
WHOLE = s.gated(0.5)
BY_SAMPLE = "sample by sample"
ABLATIONS: dict[str, dict[str, object]] = {
    BY_SAMPLE: {"level": "sample"},
    "without pre-norm": {"pre_norm": False},
    "without post-norm": {"post_norm": False},
    "without sigmoid": {"sigmoid": False, "level": "sample"},
    "client-wise": {"level": "client"},
}


# Table 1


def main_columns(scale: Scale) -> list[Column]:
    return columns(scale, "EMNIST", "FEMNIST", "CIFAR-10", "CIFAR-100")


def main_cells(scale: Scale) -> list[Cell]:
    return [s.main_cell(column, row) for column in main_columns(scale) for row in MAIN_ROWS]


def show_main(found: Found) -> list[Block]:
    """Under both protocols, and by the round that is best on validation data; densities and uploads as measured."""
    shown, printed = main_columns(found.scale), without_notes("table-1")
    names, rows = pair_grid(found, shown, MAIN_ROWS, s.main_cell, at_the_end(AFTER_ROUND), printed)
    trained_rows = [row for row in MAIN_ROWS if row != s.TUNING]
    authors = {name: {row: table[row] for row in GATED} for name, table in printed.items() if name in stands(shown)}
    trained, after = pair_grid(found, shown, trained_rows, s.main_cell, at_the_end(AFTER_TRAINING), authors)
    best, best_rows = pair_grid(found, shown, MAIN_ROWS, s.main_cell, chosen, {})
    return [
        Grid(
            title="Accuracy of the last round, shared models averaged",
            corner="method",
            columns=names,
            rows=rows,
            note="Clients' own models with the new shared part; FedAvg: the shared model; FedAvg-FT: a copy of it "
            "after one epoch. The paper's numbers of pFedGate are of the next table's protocol.",
        ),
        Grid(
            title="The same right after local training, before averaging",
            corner="method",
            columns=trained,
            rows=after,
            note="So the authors' code evaluates pFedGate, but not the others. FedAvg here is FedAvg-FT.",
        ),
        Grid(
            title="The same in the round that is best on validation data", corner="method", columns=best, rows=best_rows
        ),
        density_grid(found, shown),
        Words(text=" ".join(PUBLISHED["table-1"]["notes"])),
    ]


def density_grid(found: Found, shown: Sequence[Column]) -> Grid:
    printed = PUBLISHED["densities"]
    known = {s.gated(0.5): printed["s' at s = 0.5"], s.gated(0.3): printed["s' at s = 0.3"]}
    rows: dict[str, list[Entry | None]] = {}
    for row in GATED:
        entries: list[Entry | None] = []
        for column in shown:
            cell, sent = s.main_cell(column, row), printed["upload_share"] if row == WHOLE else None
            entries.append(entry(found, cell, extra("gate_history", "density"), known.get(row)))
            entries.append(entry(found, cell, extra("gate_history", "upload_share"), sent))
        rows[row] = entries
    names = [f"{column.title}, {what}" for column in shown for what in ("kept s'", "sent q")]
    return Grid(title="Share of the network that clients keep and send", columns=names, rows=rows, digits=3)


def without_notes(table: str) -> dict[str, dict[str, list[float]]]:
    return {name: rows for name, rows in PUBLISHED[table].items() if name != "notes"}


def stands(shown: Sequence[Column]) -> set[str]:
    return {column.stands_for for column in shown}


# Table 2


def ablation_columns(scale: Scale) -> list[Column]:
    return columns(scale, "EMNIST", "CIFAR-100")


def ablation_cell(column: Column, row: str) -> Cell:
    return s.pfedgate(column, 0.5) if row == WHOLE else s.pfedgate(column, 0.5, row, **ABLATIONS[row])


def ablation_cells(scale: Scale) -> list[Cell]:
    return [ablation_cell(column, row) for column in ablation_columns(scale) for row in (WHOLE, *ABLATIONS)]


def rounds_to_most(outcome: Outcome) -> float:
    """The first evaluated round with 0.8 of the run's last accuracy."""
    at = outcome.facts.get("rounds_to", {}).get("share_of_final")
    return float(at) if isinstance(at, int) else math.nan


def show_ablations(found: Found) -> list[Block]:
    """Accuracy under both protocols, and the time to 0.8 of it."""
    shown, printed = ablation_columns(found.scale), PUBLISHED["table-2"]
    rows: dict[str, list[Entry | None]] = {}
    for row in (WHOLE, *ABLATIONS):
        entries: list[Entry | None] = []
        for column in shown:
            cell = ablation_cell(column, row)
            accuracy, rounds = printed[column.stands_for].get(row, (None, None))
            entries.append(entry(found, cell, last(metric_of(row))))
            entries.append(entry(found, cell, last(metric_of(row, AFTER_TRAINING)), accuracy))
            entries.append(relative(found, cell, ablation_cell(column, WHOLE), rounds))
        rows[row] = entries
    heads = (AFTER_ROUND, AFTER_TRAINING, "rounds to 0.8 of it")
    names = [f"{column.title}, {head}" for column in shown for head in heads]
    note = (
        "Rounds are those of the whole method's; they are known up to the rounds between evaluations. Gates without "
        "a sigmoid are made sample by sample: their mean over a batch is 0 at the start, and nothing would be learnt."
    )
    return [Grid(title="The gate without its parts, s = 0.5", corner="gate", columns=names, rows=rows, note=note)]


def relative(found: Found, own: Cell, whole: Cell, published: float | None) -> Entry:
    """Rounds over those of the whole method, on the same seeds."""
    reference = entry(found, whole, rounds_to_most).measured
    measured = entry(found, own, rounds_to_most, published)
    if not isinstance(reference, float) or not isinstance(measured.measured, float) or not reference:
        return Entry(published=published)
    return Entry(measured=measured.measured / reference, seeds=measured.seeds, published=published)
