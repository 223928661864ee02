"""How a metric is read: which way is better, how clients are pooled, in percent or in digits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

SMALLER_IS_BETTER = frozenset({"loss", "mae", "rmse", "calibration_error"})
"""As in `evaluate`, which reports do not import; a test holds the two together."""
POOLED_AS_SQUARES = frozenset({"rmse"})
MOST_DECIMALS = 5
TOO_LARGE = 1e6


def direction(metric: str) -> int:
    """1 where larger is better, -1 where smaller is."""
    return -1 if metric in SMALLER_IS_BETTER else 1


def power(metric: str) -> int:
    """A root of mean squares is pooled over clients as squares."""
    return 2 if metric in POOLED_AS_SQUARES else 1


def in_percent(metric: str) -> bool:
    return metric.endswith("accuracy") or metric == "unseen_share"


@dataclass(frozen=True, kw_only=True)
class Digits:
    """How the numbers of one metric are written in a table, without unit."""

    factor: int
    decimals: int | None
    """None: too small or too large for a fixed number of them."""

    def plain(self, value: float | None) -> str:
        if value is None or math.isnan(value):
            return "-"
        text = f"{value:.1e}" if self.decimals is None else f"{self.factor * value:.{self.decimals}f}"
        return text.removeprefix("-") if float(text) == 0 else text

    def signed(self, value: float | None) -> str:
        """Of a difference: what is not zero has a sign."""
        text = self.plain(value)
        return text if text.startswith("-") or float(text) == 0 else f"+{text}"


def digits_of(metric: str, values: Iterable[float | None]) -> Digits:
    """Percent with one decimal; of other numbers four digits of the largest, and no more decimals of the others."""
    if in_percent(metric):
        return Digits(factor=100, decimals=1)
    largest = max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)
    decimals = 3 if largest == 0 else max(0, 3 - math.floor(math.log10(largest)))
    fixed = decimals <= MOST_DECIMALS and largest < TOO_LARGE
    return Digits(factor=1, decimals=decimals if fixed else None)
