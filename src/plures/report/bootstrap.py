"""An interval for the difference of two series: seeds and clients are drawn anew, independently of each other.

The pigeonhole bootstrap of A. B. Owen, The Annals of Applied Statistics 1 (2007) 386-411.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from plures.report.infinite import Floats, mean

RESAMPLES = 10_000
LEVEL = 0.95
KEY = 2007
"""Of the draws, so that the same records have the same interval."""
MOST_DRAWS = 10**8
"""Of clients in all: more than 10,000 clients have fewer resamples, but never below a tenth."""
AT_ONCE = 200_000
"""Draws of clients that are held in memory."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Where a difference lies, by percentiles of resamples."""

    low: float
    high: float
    level: float
    resamples: int

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def pooled(values: Floats, examples: Floats, power: int = 1) -> Floats:
    """Clients (the last dimension) as if their examples were one set."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: Floats = (values**power) @ examples / examples.sum()
    return found if power == 1 else found ** (1 / power)


def mean_difference(own: Floats, reference: Floats, examples: Floats, power: int = 1) -> float:
    """Of arrays (seeds, clients): the pooled difference of each seed, averaged over seeds."""
    return mean(pooled_differences(own, reference, examples, power))


def pooled_differences(own: Floats, reference: Floats, examples: Floats, power: int = 1) -> Floats:
    """One for each seed; NaN where both are infinite: what they differ by is not known."""
    with np.errstate(invalid="ignore"):
        return pooled(own, examples, power) - pooled(reference, examples, power)


def crossed_interval(
    own: Floats,
    reference: Floats,
    examples: Floats,
    *,
    power: int = 1,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Interval | None:
    """The interval of the mean difference. With one seed, only clients are drawn; the two of a pair stay together.

    None where a value is infinite: there is no finite interval then.
    """
    resamples = max(min(resamples, MOST_DRAWS // own.shape[1]), min(resamples, RESAMPLES // 10))
    found = resampled_differences(own, reference, examples, power=power, resamples=resamples)
    if not np.isfinite(found).all():
        return None
    if np.ptp(found) <= 1e-12 * np.abs(np.concatenate([own, reference])).max():  # nothing varies but rounding
        found[:] = mean_difference(own, reference, examples, power)
    tail = 50 * (1 - level)
    low, high = np.percentile(found, [tail, 100 - tail])
    return Interval(low=float(low), high=float(high), level=level, resamples=resamples)


def resampled_differences(own: Floats, reference: Floats, examples: Floats, *, power: int, resamples: int) -> Floats:
    """The mean difference of each resample: how often a seed or a client was drawn is its weight."""
    draws = np.random.default_rng(KEY)
    num_seeds, num_clients = own.shape
    seeds = draws.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=resamples) / num_seeds
    with np.errstate(over="ignore"):
        sides = np.concatenate([own, reference]) ** power * examples
    found = np.empty(resamples)
    step = max(1, AT_ONCE // num_clients)
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        counts = multinomial_counts(draws, stop - start, num_clients)
        with np.errstate(over="ignore", invalid="ignore"):
            values = (counts @ sides.T / (counts @ examples)[:, None]) ** (1 / power)
            differences = values[:, :num_seeds] - values[:, num_seeds:]
            found[start:stop] = (seeds[start:stop] * differences).sum(axis=1)
    return found


def multinomial_counts(draws: np.random.Generator, rows: int, size: int) -> Floats:
    """How often each of `size` clients is among `size` draws, for each row; faster than numpy's for many clients."""
    drawn = draws.integers(size, size=(rows, size)) + size * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size).astype(np.float64)
