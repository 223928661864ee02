"""Two series of runs on the same seeds and the same clients, client by client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plures.report.bootstrap import Interval, crossed_interval, mean_difference, pooled_differences
from plures.report.client_scores import ClientScores, Numbers
from plures.report.infinite import Floats, mean, mean_of_seeds, minus, percentiles
from plures.report.scales import direction, power

Flags = NDArray[np.bool_]

WRITTEN_DIGITS = 6
"""Of a number in clients.csv.gz."""


@dataclass(frozen=True, kw_only=True)
class ClientDeltas:
    """What becomes of clients that change from one series to the other: own minus reference, averaged over seeds."""

    clients: int
    left_out: int
    """Clients that lack a value somewhere."""
    helped: int
    hurt: int
    same: int
    sign_changes: int
    """Clients that are better off under one seed and worse off under another."""
    min: float
    lower_quartile: float
    median: float
    upper_quartile: float
    max: float
    mean: float
    """Over clients, each counting the same."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """Values of one metric, of shape (seeds, clients); every client has one under every seed on both sides."""

    metric: str
    seeds: tuple[int, ...]
    clients: Numbers
    examples: Floats
    own: Floats
    reference: Floats
    left_out: int
    """Clients that lack a value somewhere."""

    def seed_differences(self) -> Floats:
        """Of the pooled metric, one for each seed."""
        return pooled_differences(self.own, self.reference, self.examples, power(self.metric))

    def difference(self) -> float:
        return mean_difference(self.own, self.reference, self.examples, power(self.metric))

    def interval(self) -> Interval | None:
        return crossed_interval(self.own, self.reference, self.examples, power=power(self.metric))

    def client_differences(self) -> Floats:
        """Averaged over seeds; what the rounding of the records can explain is 0."""
        found = mean_of_seeds(minus(self.own, self.reference))
        if len(self.seeds) > 1:
            hidden = (half_a_digit(self.own) + half_a_digit(self.reference)).mean(axis=0)
            found[np.abs(found) <= hidden] = 0.0
        return found

    def changing(self) -> Flags:
        """Whether each client is helped under one seed and hurt under another."""
        differences = minus(self.own, self.reference)
        return np.logical_and((differences > 0).any(axis=0), (differences < 0).any(axis=0))

    def deltas(self) -> ClientDeltas:
        found = self.client_differences()
        gains = direction(self.metric) * found
        low, *middle, high = percentiles(found, [0, 25, 50, 75, 100])
        return ClientDeltas(
            clients=len(found),
            left_out=self.left_out,
            helped=int((gains > 0).sum()),
            hurt=int((gains < 0).sum()),
            same=int((gains == 0).sum()),
            sign_changes=int(self.changing().sum()),
            min=low,
            lower_quartile=middle[0],
            median=middle[1],
            upper_quartile=middle[2],
            max=high,
            mean=mean(found),
        )


def half_a_digit(values: Floats) -> Floats:
    """The most by which a written number may be off; nothing and infinity are exact."""
    exact = (values == 0) | np.isinf(values)
    sizes = np.where(exact, 1.0, np.abs(values))
    return np.where(exact, 0.0, 0.5 * 10.0 ** (np.floor(np.log10(sizes)) + 1 - WRITTEN_DIGITS))


def pair(own: Mapping[int, ClientScores], reference: Mapping[int, ClientScores], metric: str) -> Pairing | None:
    """Of the seeds that both have (scores by seed), the clients with a value everywhere; None if there are none."""
    seeds = tuple(seed for seed in own if seed in reference)
    sides = [side[seed] for side in (own, reference) for seed in seeds]
    if not sides or any(metric not in scores.values for scores in sides):
        return None
    everybody = np.unique(np.concatenate([scores.clients for scores in sides]))
    table = np.stack([aligned(scores, metric, everybody) for scores in sides])
    whole = ~np.isnan(table).any(axis=0)
    if not whole.any():
        return None
    examples = examples_of(sides[0], everybody[whole])
    return Pairing(
        metric=metric,
        seeds=seeds,
        clients=everybody[whole],
        examples=examples,
        own=table[: len(seeds), whole],
        reference=table[len(seeds) :, whole],
        left_out=int((~whole).sum()),
    )


def aligned(scores: ClientScores, metric: str, everybody: Numbers) -> Floats:
    """A value for each client; NaN for those without, and for those without examples."""
    found = np.full(len(everybody), np.nan)
    places = np.searchsorted(everybody, scores.clients)
    found[places] = np.where(scores.examples > 0, scores.values[metric], np.nan)
    return found


def examples_of(scores: ClientScores, clients: Numbers) -> Floats:
    found: Floats = scores.examples[np.searchsorted(scores.clients, clients)].astype(np.float64)
    return found
