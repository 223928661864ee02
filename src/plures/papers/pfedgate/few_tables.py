"""Tables 5, 6 and 7 of the pFedGate paper: newcomers, a fifth of the clients in a round, and numbers of blocks."""

from __future__ import annotations

from plures.papers.blocks import Block, Entry, Grid, Words
from plures.papers.cells import Cell
from plures.papers.pfedgate import settings as s
from plures.papers.pfedgate.columns import PUBLISHED, Column, columns
from plures.papers.pfedgate.numbers import AFTER_ROUND, AFTER_TRAINING, at_the_end, metric_of, pair_grid
from plures.papers.pfedgate.tables import GATED, without_notes
from plures.papers.reading import Read, entry, last
from plures.papers.recipe import Found, Scale

FEW_ROWS = (s.FEDAVG, s.FEDEM, *GATED)


# Table 5


def few_columns(scale: Scale) -> list[Column]:
    return columns(scale, "FEMNIST", "CIFAR-10")


def newcomer_cells(scale: Scale) -> list[Cell]:
    return [s.with_newcomers(column, row) for column in few_columns(scale) for row in FEW_ROWS]


def show_newcomers(found: Found) -> list[Block]:
    """Participants, clients that come at the end, and the gap; of FedAvg with and without an epoch on a copy."""
    shown, printed = few_columns(found.scale), PUBLISHED["table-5"]
    rows: dict[str, list[Entry | None]] = {}
    for row in (s.FEDAVG, s.TUNING, *FEW_ROWS[1:]):
        entries: list[Entry | None] = []
        for column in shown:
            cell = s.with_newcomers(column, row if row != s.TUNING else s.FEDAVG)
            known = printed[column.stands_for].get(row, (None, None, None))
            theirs = f"newcomers/{newcomer_model(row)}/test/accuracy"
            entries.append(entry(found, cell, last(metric_of(row)), known[0]))
            entries.append(entry(found, cell, last(theirs), known[1]))
            entries.append(entry(found, cell, gap(metric_of(row), theirs), known[2]))
            entries.append(entry(found, cell, gap(f"{newcomer_model(row)}/test/accuracy", theirs)))
        rows[row] = entries
    heads = ("participants", "newcomers", "gap", "gap, both fine-tuned")
    names = [f"{column.title}, {head}" for column in shown for head in heads]
    note = (
        "Newcomers of pFedGate train a gate for five epochs, those of FedEM learn their shares of the three "
        "networks, those of FedAvg have the shared model, and FedAvg-FT a copy of it after one epoch. In the last "
        "gap, participants did so as well. A fifth of the clients are few, and gaps of the clients themselves are in "
        "these numbers."
    )
    return [
        Grid(title="A fifth of the clients come after training", corner="method", columns=names, rows=rows, note=note)
    ]


def newcomer_model(row: str) -> str:
    return s.SHARED if row == s.FEDAVG else s.TUNED


def gap(own: str, theirs: str) -> Read:
    return lambda outcome: 100 * (outcome.last(own) - outcome.last(theirs))


# Table 6


def sampled_cells(scale: Scale) -> list[Cell]:
    return [make(column, row) for column in few_columns(scale) for make in (s.main_cell, s.sampled) for row in FEW_ROWS]


def show_sampled(found: Found) -> list[Block]:
    """With a fifth of the clients in a round, and the drop from everybody's taking part."""
    shown, printed = few_columns(found.scale), without_notes("table-6")
    drops = printed.pop("drop")
    names, rows = pair_grid(found, shown, FEW_ROWS, s.sampled, at_the_end(AFTER_ROUND), printed)
    fallen: dict[str, list[Entry | None]] = {}
    for row in FEW_ROWS:
        entries: list[Entry | None] = []
        for number, summed in enumerate(("weighted", "bottom_decile")):
            for column in shown:
                entries.append(drop(found, column, row, summed))
            entries.append(Entry(published=drops[row][number]))
        fallen[row] = entries
    heads = [
        name
        for what in ("mean", "bottom decile")
        for name in (*(f"{c.title}, {what}" for c in shown), f"average, {what}")
    ]
    return [
        Grid(title="Accuracy with a fifth of the clients in a round", corner="method", columns=names, rows=rows),
        Grid(title="Drop from all clients in a round", corner="method", columns=heads, rows=fallen),
        Words(text=" ".join(PUBLISHED["table-6"]["notes"])),
    ]


def drop(found: Found, column: Column, row: str, summed: str) -> Entry:
    """In points, on average over seeds."""
    read = last(metric_of(row), summed)
    whole, part = (entry(found, make(column, row), read) for make in (s.main_cell, s.sampled))
    if not isinstance(whole.measured, float) or not isinstance(part.measured, float):
        return Entry()
    return Entry(measured=whole.measured - part.measured, seeds=min(whole.seeds, part.seeds))


# Table 7


def block_row(splits: int, density: float) -> str:
    return f"pFedGate, B = {splits}, s = {density:g}"


BLOCK_ROWS = {block_row(splits, density): (splits, density) for splits in (5, 2, 10) for density in (0.5, 0.3)}
LESS_MASKED = "FedMask, s = 0.3"
SPLIT_ROWS = (s.FEDAVG, s.FEDEM, s.MASKED, LESS_MASKED, *BLOCK_ROWS)


def split_cell(column: Column, row: str) -> Cell:
    if row == LESS_MASKED:
        return s.fedmask(column, 0.3)
    if row not in BLOCK_ROWS:
        return s.main_cell(column, row)
    splits, density = BLOCK_ROWS[row]
    return s.pfedgate(column, density, row) if splits == 5 else s.pfedgate(column, density, row, splits=splits)


def split_cells(scale: Scale) -> list[Cell]:
    return [split_cell(column, row) for column in few_columns(scale) for row in SPLIT_ROWS]


def show_splits(found: Found) -> list[Block]:
    """Numbers of blocks, under both protocols."""
    shown, printed = few_columns(found.scale), without_notes("table-7")
    names, rows = pair_grid(found, shown, SPLIT_ROWS, split_cell, at_the_end(AFTER_ROUND), printed)
    after, trained = pair_grid(found, shown, SPLIT_ROWS, split_cell, at_the_end(AFTER_TRAINING), {})
    return [
        Grid(title="Accuracy of the last round", corner="method", columns=names, rows=rows),
        Grid(title="The same right after local training", corner="method", columns=after, rows=trained),
        Words(text=" ".join(PUBLISHED["table-7"]["notes"])),
    ]
