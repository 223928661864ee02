"""Numbers over clients and seeds where some may be infinite, as the errors of models that overflow are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def minus(own: Floats, reference: Floats) -> Floats:
    """Value by value; where both are infinite, nothing has changed."""
    with np.errstate(invalid="ignore"):
        return np.where(own == reference, 0.0, own - reference)


def mean_of_seeds(values: Floats) -> Floats:
    """Over the first dimension: an infinite value outweighs all finite ones, and as many up as down cancel."""
    infinite = np.isinf(values)
    finite: Floats = np.where(infinite, 0.0, values).mean(axis=0)
    balance = np.where(infinite, np.sign(values), 0.0).sum(axis=0)
    return np.where(balance == 0, finite, np.copysign(np.inf, balance))


def mean(values: Floats | Sequence[float]) -> float:
    """NaN where some are infinite above and others below."""
    with np.errstate(invalid="ignore"):
        return float(np.mean(values))


def std(values: Floats | Sequence[float]) -> float:
    """Divided by their number (ddof 0); NaN as soon as one is infinite."""
    with np.errstate(invalid="ignore"):
        return float(np.std(values))


def percentiles(values: Floats, at: Sequence[float]) -> list[float]:
    """As numpy has them; one that lies between a finite and an infinite value is infinite."""
    low, high = (np.percentile(values, at, method=method) for method in ("lower", "higher"))
    with np.errstate(invalid="ignore"):
        between = np.where(np.isfinite(low) & np.isfinite(high), np.percentile(values, at), low + high)
    found: list[float] = np.where(low == high, low, between).tolist()
    return found
