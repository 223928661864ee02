"""What personalisation changes for each client, against the shared model of stage (a)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from plures.papers.blocks import Entry, Figure, Grid, Series
from plures.papers.cells import Cell
from plures.papers.reading import paired
from plures.papers.recipe import Found
from plures.report.pairing import Pairing

Numbers = NDArray[np.float64]
Runs = Mapping[str, Cell | None]
"""By the name of a panel or row."""


def change(found: Found, cell: Cell | None, split: str = "test", model: str = "finetuned") -> Pairing | None:
    """After minus before, client by client; None where the cell was not run."""
    return None if cell is None else paired(found, cell, cell, model=model, against="stage_a", split=split)


def points_of(found: Found, cell: Cell, split: str) -> Series | None:
    """A client's change in points over the examples it trains on."""
    pairing = change(found, cell, split)
    outcomes = list(found.outcomes(cell).values())
    if pairing is None or not outcomes:
        return None
    scores = outcomes[0].scores("finetuned", "train")
    if scores is None:
        return None
    sizes = dict(zip(scores.clients.tolist(), scores.examples.tolist(), strict=True))
    known = [place for place, client in enumerate(pairing.clients.tolist()) if client in sizes]
    moved = 100 * pairing.client_differences()
    return Series(
        x=[float(sizes[int(pairing.clients[place])]) for place in known], y=[float(moved[place]) for place in known]
    )


def scatter(
    found: Found, name: str, title: str, runs: Runs, splits: tuple[str, ...] = ("train", "test")
) -> Figure | None:
    """A panel for each run and split; none without runs."""
    panels: dict[str, dict[str, Series]] = {}
    for split in splits:
        for label, cell in runs.items():
            series = None if cell is None else points_of(found, cell, split)
            if series is not None:
                panels[f"{label} ({split})"] = {"clients": series}
    if not panels:
        return None
    note = "Below 0, personalisation hurts a client."
    return Figure(
        name=name,
        title=title,
        x="training examples of a client",
        y="change in accuracy, points",
        panels=panels,
        kind="points",
        note=note,
    )


def violins(found: Found, name: str, title: str, panels: Mapping[str, tuple[str, Runs]]) -> Figure | None:
    """Distributions of the changes; a panel has a split and its runs."""
    drawn: dict[str, dict[str, Series]] = {}
    for panel, (split, runs) in panels.items():
        series = {}
        for label, cell in runs.items():
            pairing = change(found, cell, split)
            if pairing is not None:
                series[label] = Series(x=[], y=(100 * pairing.client_differences()).tolist())
        if series:
            drawn[panel] = series
    if not drawn:
        return None
    return Figure(name=name, title=title, x="", y="change in accuracy, points", panels=drawn, kind="violins")


def counted(found: Found, title: str, runs: Runs, published: Mapping[str, Mapping[str, float]] | None = None) -> Grid:
    """Clients helped and hurt, before and after each may keep to the shared model."""
    columns = ["test, points", "helped", "hurt", "hurt, %", "hurt in training", "hurt with guard"]
    rows: dict[str, list[Entry | None]] = {}
    for label, cell in runs.items():
        known = (published or {}).get(label, {})
        test, train = change(found, cell), change(found, cell, "train")
        guarded = change(found, cell, model="guarded")
        if test is None:
            rows[label] = [Entry(published=known.get(column)) for column in columns]
            continue
        moved, seeds = test.deltas(), len(test.seeds)
        numbers: list[float | None] = [
            100 * test.difference(),
            moved.helped,
            moved.hurt,
            100 * moved.hurt / moved.clients,
            None if train is None else train.deltas().hurt,
            None if guarded is None else guarded.deltas().hurt,
        ]
        rows[label] = [
            Entry(measured=number, seeds=seeds, published=known.get(column))
            for column, number in zip(columns, numbers, strict=True)
        ]
    note = (
        "Counts of clients whose accuracy rose or fell against the shared model of stage (a), averaged over seeds. "
        "With a guard a client keeps to the shared model unless its own is better on its validation data."
    )
    return Grid(title=title, corner="run", columns=columns, rows=rows, digits=1, note=note)
