"""What a page is made of: sections of charts with their numbers, and sentences in place of charts without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Trace = dict[str, Any]
"""In the words of plotly, as is a layout."""
Cell = str | float | int | None


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The table below a chart, for readers who do not see it."""

    heading: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    more: int = 0
    """Rows that were left out."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A picture, what it shows in a sentence, and its numbers."""

    key: str
    """Of letters, digits and hyphens; no other chart has it."""
    title: str
    caption: str
    traces: Sequence[Trace]
    numbers: Numbers
    layout: Mapping[str, Any] = field(default_factory=dict)
    height: int = 320
    """In pixels."""
    wide: bool = False
    """As wide as the page, where others stand side by side."""


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A chart that these runs have no data for, and what would bring it."""

    title: str
    why: str


Item = Chart | Missing


@dataclass(frozen=True, kw_only=True)
class Group:
    """Charts that stand together."""

    title: str = ""
    """Without one, they stand right under the heading of their section."""
    items: Sequence[Item]


@dataclass(frozen=True, kw_only=True)
class Section:
    """Groups of charts under one heading."""

    key: str
    title: str
    intro: str
    groups: Sequence[Group]
    has_labels: bool = True
    """Whether charts are coloured by label, so that a legend stands above them."""


MOST_ROWS = 40
"""In the table below a chart; run folders have the rest."""


def numbers(heading: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Numbers:
    """The first rows, and how many more there are."""
    return Numbers(heading=heading, rows=rows[:MOST_ROWS], more=max(0, len(rows) - MOST_ROWS))
