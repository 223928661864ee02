"""Of many clients as many as a page can show, so that what is shown looks like the whole."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plures.report.infinite import Floats

MOST_POINTS = 2_000
"""Clients in one panel."""
LONGEST_NAME = 48


def evenly(count: int, most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Places from the first to the last, evenly spaced, all of them if there are few."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).round().astype(np.int64)


def spread(values: Floats, most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Places evenly spaced in the order of their values: the smallest, the largest and every quantile stay."""
    order = np.argsort(values, kind="stable")
    return np.sort(order[evenly(len(values), most)])


def sampled_text(shown: int, count: int) -> str:
    """A sentence that says what is left out; nothing if nothing is."""
    if shown == count:
        return ""
    return f" {shown:,} of {count:,} clients are drawn, evenly spaced in their order; all numbers are of all clients."


def plain(name: str) -> str:
    """A name from a record as text: plotly reads tags in names, and nobody reads names that do not end."""
    short = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    return html.escape(short, quote=False)


def plains(names: Sequence[str]) -> list[str]:
    return [plain(name) for name in names]
