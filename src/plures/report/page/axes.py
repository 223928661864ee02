"""Axes that all charts have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from plures.report.page.few import plain
from plures.report.page.palette import GRID, INK
from plures.report.scales import in_percent

ABBREVIATIONS = frozenset({"rmse", "mae", "auc", "r2"})
LOG_FROM = 30
"""An axis is logarithmic where the largest number is so many times the smallest."""


def axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": plain(title), "standoff": 8}, "gridcolor": GRID, "zeroline": False, "ticks": "", **more}


def metric_axis(metric: str, **more: Any) -> dict[str, Any]:
    return axis(metric, **(share_ticks() if in_percent(metric) else {}), **more)


def share_ticks() -> dict[str, Any]:
    """As many decimals as ticks need to differ, and no room for shares that there cannot be."""
    return {"tickformat": "~%", "autorangeoptions": {"clipmin": 0, "clipmax": 1}}


def metric_range(metric: str, low: float, high: float) -> list[float]:
    """A range with some room; shares stay between 0 and 1."""
    wide = room(low, high)
    return [max(0.0, wide[0]), min(1.0, wide[1])] if in_percent(metric) else wide


def titled(metric: str) -> str:
    """As a title begins with it."""
    return metric.upper() if metric in ABBREVIATIONS else metric.replace("_", " ").capitalize()


def round_axis(rounds: Sequence[int]) -> dict[str, Any]:
    """There is no half of a round."""
    few = bool(rounds) and max(rounds) - min(rounds) <= 8
    return axis("round", **({"dtick": 1} if few else {}))


def metric_format(metric: str) -> str:
    """Of a number in a hover text."""
    return ":.1%" if in_percent(metric) else ":.4g"


def bytes_axis(title: str = "bytes sent", **more: Any) -> dict[str, Any]:
    return axis(title, tickformat="~s", ticksuffix="B", **more)


def log_if_wide(values: Sequence[float]) -> dict[str, Any]:
    """For an axis of counts: logarithmic where they differ a lot."""
    known = np.array([value for value in values if np.isfinite(value)])
    if not len(known) or known.min() <= 0 or known.max() < LOG_FROM * known.min():
        return {}
    return {"type": "log", "dtick": 1}


def zero_line() -> dict[str, Any]:
    """Where nothing changes."""
    return {"zeroline": True, "zerolinecolor": INK, "zerolinewidth": 1}


def room(low: float, high: float) -> list[float]:
    """A range with some room on both sides, never empty."""
    margin = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return [low - margin, high + margin]
