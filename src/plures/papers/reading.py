"""Reading numbers off outcomes: entries of tables, curves over seeds, paired differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from plures.papers.blocks import Entry, Series, Verdict
from plures.papers.cells import Cell
from plures.papers.outcomes import DIVERGED, Outcome
from plures.papers.recipe import Found
from plures.report.pairing import Pairing, pair

Read = Callable[[Outcome], float]


def last(metric: str, summed: str = "weighted", *, times: float = 100) -> Read:
    """The last evaluated round's value, in percent by default."""
    return lambda outcome: times * outcome.last(metric, summed)


def tail(metric: str, rounds: int = 10, *, until: int | None = None, times: float = 100) -> Read:
    """The mean over the last rounds, or the last up to one, in percent by default."""
    return lambda outcome: times * outcome.tail(metric, rounds, until)


def entry(found: Found, cell: Cell | None, read: Read, published: float | str | None = None) -> Entry:
    """Mean and standard deviation over the seeds that have run; where one diverged there is no number."""
    if cell is None:
        return Entry(published=published)
    outcomes = found.outcomes(cell).values()
    if any(outcome.status == DIVERGED for outcome in outcomes):
        return Entry(measured=DIVERGED, published=published)
    values = [value for value in map(read, outcomes) if not math.isnan(value)]
    if not values:
        return Entry(published=published)
    spread = float(np.std(values)) if len(values) > 1 else None
    return Entry(measured=float(np.mean(values)), spread=spread, seeds=len(values), published=published)


def grid_rows(
    found: Found,
    cells: Sequence[Cell],
    read: Read,
    columns: Sequence[str],
    published: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, list[Entry | None]]:
    """A row for each name among the cells and among what is published, in that order; columns by name."""
    places = {(cell.row, cell.column): cell for cell in cells}
    published = published or {}
    names = dict.fromkeys([*(cell.row for cell in cells), *published])
    rows: dict[str, list[Entry | None]] = {}
    for row in names:
        known = [(places.get((row, column)), published.get(row, {}).get(column)) for column in columns]
        rows[row] = [
            None if cell is None and number is None else entry(found, cell, read, number) for cell, number in known
        ]
    return rows


def line(found: Found, cell: Cell, metric: str, *, times: float = 100) -> Series | None:
    """A metric over rounds, averaged over seeds; None where the cell was not run."""
    curves = [outcome.curve(metric) for outcome in found.outcomes(cell).values()]
    curves = [curve for curve in curves if curve[0]]
    if not curves:
        return None
    common = sorted(set.intersection(*(set(rounds) for rounds, _ in curves)))
    values = [dict(zip(*curve, strict=True)) for curve in curves]
    return Series(x=common, y=[times * float(np.mean([one[round] for one in values])) for round in common])


def lines(found: Found, cells: Mapping[str, Cell], metric: str, *, times: float = 100) -> dict[str, Series]:
    """Those of the cells that have run."""
    drawn = {name: line(found, cell, metric, times=times) for name, cell in cells.items()}
    return {name: one for name, one in drawn.items() if one is not None}


def paired(
    found: Found,
    own: Cell,
    reference: Cell,
    *,
    model: str = "personal",
    against: str | None = None,
    split: str = "test",
    metric: str = "accuracy",
) -> Pairing | None:
    """Two cells on the same seeds and clients; None where one of them was not run."""
    sides = []
    for cell, kind in ((own, model), (reference, against or model)):
        scores = {seed: outcome.scores(kind, split) for seed, outcome in found.outcomes(cell).items()}
        sides.append({seed: one for seed, one in scores.items() if one is not None})
    return pair(sides[0], sides[1], metric) if all(sides) else None


def better(pairing: Pairing | None, own: str, reference: str, *, margin: float = 0.0) -> Verdict | None:
    """Whether one is better than the other by the interval of the paired difference, in points.

    `margin` points are forgiven: with 1.0, "not more than a point worse".
    """
    if pairing is None:
        return None
    difference, interval = 100 * pairing.difference(), pairing.interval()
    low, high = (math.nan, math.nan) if interval is None else (100 * interval.low, 100 * interval.high)
    seeds = len(pairing.seeds)
    numbers = f"{own} - {reference}: {difference:+.2f} [{low:+.2f}, {high:+.2f}] points, {seeds} seed{'s'[: seeds > 1]}"
    if low > -margin:
        return Verdict(verdict="holds", figure=numbers, interval=(low, high), difference=difference)
    verdict: Literal["fails", "undecided"] = "fails" if high < -margin else "undecided"
    return Verdict(verdict=verdict, figure=numbers, interval=(low, high), difference=difference)


def all_of(parts: Mapping[str, Verdict | None], *, enough: int | None = None) -> Verdict | None:
    """A claim about several cases: holds where all do (or `enough`), fails where more fail than may."""
    known = {name: part for name, part in parts.items() if part is not None}
    if not known:
        return None
    held = sum(part.verdict == "holds" for part in known.values())
    failed = sum(part.verdict == "fails" for part in known.values())
    needed = len(parts) if enough is None else enough
    words = "; ".join(f"{name}: {part.figure}" for name, part in known.items())
    told = {name: part.verdict for name, part in known.items()} | {
        name: "not run" for name, part in parts.items() if part is None
    }
    found = [part.difference for part in known.values() if part.difference is not None]
    span = (min(found), max(found)) if found else None
    if held >= needed:
        return Verdict(verdict="holds", figure=words, parts=told, span=span)
    verdict: Literal["fails", "undecided"] = "fails" if failed > len(parts) - needed else "undecided"
    return Verdict(verdict=verdict, figure=words, parts=told, span=span)


def because(verdict: Verdict | None, why: str) -> Verdict | None:
    """With a cause, where a claim fails; what is undecided needs none but more runs."""
    return verdict if verdict is None or verdict.verdict != "fails" else replace(verdict, why=why)


def first_in_rounds(found: Found, cells: Mapping[str, tuple[Cell, str]]) -> Verdict | None:
    """Whether the first of some rows, each with its metric, has the lowest curve.

    It holds where that is so in most of the rounds and at the end, fails where it is so in neither.
    """
    curves = {
        row: {seed: dict(zip(*outcome.curve(metric), strict=True)) for seed, outcome in found.outcomes(cell).items()}
        for row, (cell, metric) in cells.items()
    }
    places = [
        (seed, round)
        for seed in set.intersection(*(set(one) for one in curves.values()))
        for round in sorted(set.intersection(*(set(one[seed]) for one in curves.values())))
    ]
    if not places:
        return None
    own = next(iter(cells))
    first = [min(curves, key=lambda row: curves[row][seed][round]) == own for seed, round in places]
    end = max(round for _, round in places)
    ends = {row: np.mean([one[seed][at] for seed, at in places if at > end - 10]) for row, one in curves.items()}
    share, is_last = float(np.mean(first)), min(ends, key=lambda row: ends[row]) == own
    told = ", ".join(f"{row} {value:.4f}" for row, value in ends.items())
    words = f"{own} lowest in {100 * share:.0f} % of the rounds, at the end {told}"
    verdict = "holds" if share > 0.5 and is_last else "fails" if share <= 0.5 and not is_last else "undecided"
    return Verdict(verdict=verdict, figure=words)  # type: ignore[arg-type]
