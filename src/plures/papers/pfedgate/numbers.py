"""Reading numbers of this paper off outcomes: by protocol, and client by client."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from plures.papers.blocks import Entry
from plures.papers.cells import Cell
from plures.papers.outcomes import Outcome
from plures.papers.pfedgate.columns import Column
from plures.papers.pfedgate.settings import model_of
from plures.papers.reading import Read, entry, last
from plures.papers.recipe import Found
from plures.report.client_scores import ClientScores
from plures.report.pairing import Pairing, pair

Protocol = Literal["after the round", "after local training"]
AFTER_ROUND: Protocol = "after the round"
AFTER_TRAINING: Protocol = "after local training"
TRAINED = "sampled/post_local/test/accuracy"
SUMMED = ("weighted", "bottom_decile")
HEADINGS = ("mean", "bottom decile")

CellOf = Callable[[Column, str], Cell]


def metric_of(row: str, protocol: Protocol = AFTER_ROUND) -> str:
    return TRAINED if protocol == AFTER_TRAINING else f"{model_of(row)}/test/accuracy"


def chosen(row: str, summed: str) -> Read:
    """In the round that was best on validation data."""

    def read(outcome: Outcome) -> float:
        metrics = outcome.facts.get("selected", {}).get("metrics", {})
        return 100 * float(metrics.get(metric_of(row), {}).get(summed, math.nan))

    return read


def extra(function: str, name: str) -> Read:
    """A number of what an extra function gave."""

    def read(outcome: Outcome) -> float:
        value = outcome.extras.get(function, {}).get(name)
        return math.nan if value is None else float(value)

    return read


def pair_grid(
    found: Found,
    columns: Sequence[Column],
    rows: Sequence[str],
    cell_of: CellOf,
    read_of: Callable[[str, str], Read],
    printed: Mapping[str, Mapping[str, Sequence[float]]],
) -> tuple[list[str], dict[str, list[Entry | None]]]:
    """Mean and bottom decile of each column; after them, columns that the paper alone has."""
    names = [f"{column.title}, {heading}" for column in columns for heading in HEADINGS]
    others = [name for name in printed if name not in {column.stands_for for column in columns}]
    names += [f"{name}, {heading}" for name in others for heading in HEADINGS]
    table: dict[str, list[Entry | None]] = {}
    for row in rows:
        entries: list[Entry | None] = []
        for column in columns:
            numbers = printed.get(column.stands_for, {}).get(row, (None, None))
            for summed, number in zip(SUMMED, numbers, strict=True):
                entries.append(entry(found, cell_of(column, row), read_of(row, summed), number))
        for name in others:
            known = printed[name].get(row)
            entries += [None, None] if known is None else [Entry(published=number) for number in known]
        table[row] = entries
    return names, table


def at_the_end(protocol: Protocol) -> Callable[[str, str], Read]:
    return lambda row, summed: last(metric_of(row, protocol), summed)


def trained_scores(outcome: Outcome) -> ClientScores | None:
    """Client by client, right after local training."""
    kept: Mapping[str, Any] = outcome.extras.get("post_local") or {}
    if not kept.get("clients"):
        return None
    numbers = np.array(kept["clients"], dtype=np.int64)
    accuracy = [math.nan if one is None else one for one in kept["accuracy"]]
    return ClientScores(
        clients=numbers,
        names=[str(number) for number in numbers],
        examples=np.array(kept["examples"], dtype=np.int64),
        values={"accuracy": np.array(accuracy, dtype=np.float64)},
    )


def paired_rows(
    found: Found, own: tuple[str, Cell], reference: tuple[str, Cell], protocol: Protocol = AFTER_ROUND
) -> Pairing | None:
    """Two rows on the same clients, under one protocol; None where one was not run.

    FedAvg-FT is a copy of FedAvg's model after one epoch on each client: that is its model under either protocol.
    """
    sides = []
    for row, cell in (own, reference):
        trained = protocol == AFTER_TRAINING and model_of(row) != "finetuned"
        scores = {
            seed: trained_scores(outcome) if trained else outcome.scores(model_of(row))
            for seed, outcome in found.outcomes(cell).items()
        }
        sides.append({seed: one for seed, one in scores.items() if one is not None})
    return pair(sides[0], sides[1], "accuracy") if all(sides) else None


def decile_gain(found: Found, own: tuple[str, Cell], reference: tuple[str, Cell], protocol: Protocol) -> float | None:
    """How far the bottom decile of the first is above that of the second, in points."""
    values = []
    for row, cell in (own, reference):
        tuned = model_of(row) == "finetuned"
        read = last(metric_of(row, AFTER_ROUND if tuned else protocol), "bottom_decile")
        measured = entry(found, cell, read).measured
        if not isinstance(measured, float):
            return None
        values.append(measured)
    return values[0] - values[1]


def has_run(found: Found, cell: Cell) -> bool:
    return bool(found.outcomes(cell))
