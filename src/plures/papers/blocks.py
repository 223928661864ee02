"""What a page of a reproduction is made of: words, tables of measured beside published numbers, and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One number of a table: as measured, and as published."""

    measured: float | str | None = None
    spread: float | None = None
    """Standard deviation over seeds (ddof 0), where there are several."""
    seeds: int = 0
    published: float | str | None = None


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table; a missing entry was neither measured nor published."""

    title: str
    corner: str = ""
    """Above the names of the rows."""
    columns: Sequence[str]
    rows: Mapping[str, Sequence[Entry | None]]
    digits: int = 2
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line, cloud of points, group of bars or violin."""

    x: Sequence[float | str]
    y: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels beside each other, with the same series in each."""

    name: str
    """Of its file, without the ending."""
    title: str
    x: str
    y: str
    panels: Mapping[str, Mapping[str, Series]]
    kind: Literal["lines", "points", "bars", "violins"] = "lines"
    log_y: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Words:
    """A paragraph."""

    text: str


Block = Grid | Figure | Words


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a claim."""

    verdict: Literal["holds", "fails", "undecided"]
    figure: str
    """The numbers that decide, in a line: PFLEGO 98.4, FedPer 97.9, difference 0.5 [0.3, 0.7]."""
    why: str = ""
    """Where it fails or is undecided: the cause, as far as it is known."""
    interval: tuple[float, float] | None = None
    difference: float | None = None
    """In points, where two cells are paired."""
    span: tuple[float, float] | None = None
    """The smallest and the largest difference of its cases."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Verdicts of the cases that it is made of, where there are several."""
