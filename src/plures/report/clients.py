"""What is told of one label client by client, as plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from plures.core.errors import InvalidConfig, did_you_mean
from plures.report.infinite import Floats, mean, percentiles, std
from plures.report.pairing import ClientDeltas
from plures.report.population import Member, label_counts
from plures.report.scales import SMALLER_IS_BETTER, direction


@dataclass(frozen=True, kw_only=True)
class ClientRow:
    """One client; values are averaged over seeds."""

    client: int
    name: str
    examples: int
    """Items that were scored: examples, or tokens of a text."""
    member: Member | None
    values: Mapping[str, float]
    """By metric; NaN where it does not exist for this client."""
    delta: float | None
    sign_changes: bool
    """Better off under one seed than the reference, worse off under another."""

    def as_json(self) -> dict[str, Any]:
        member = {} if self.member is None else asdict(self.member)
        for name in ("train_labels", "test_labels"):
            if name in member:
                member[name] = label_counts(member[name])
        mine: dict[str, Any] = {"client": self.client, "name": self.name, "examples": self.examples, **self.values}
        return mine | member | {"delta": self.delta, "sign_changes": self.sign_changes}


@dataclass(frozen=True, kw_only=True)
class Overview:
    """A metric over clients, each counting the same."""

    clients: int
    mean: float
    std: float
    """Divided by their number (ddof 0)."""
    bottom_decile: float
    """The element floor(n / 10), counted from 0, of the clients sorted from the worst."""
    worst: float
    best: float
    lower_quartile: float
    median: float
    upper_quartile: float


@dataclass(frozen=True, kw_only=True)
class ClientReport:
    """All clients of one label."""

    label: str
    model: str
    metric: str
    split: str
    seeds: tuple[int, ...]
    reference: str | None
    reference_model: str | None
    paired_seeds: tuple[int, ...]
    rows: tuple[ClientRow, ...]
    without: int
    """Clients that have nothing to be scored on this split, as far as it was recorded who the clients are."""
    overview: Overview | None
    deltas: Mapping[str, ClientDeltas]
    """By split, those that both sides have."""

    def as_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "model": self.model,
            "metric": self.metric,
            "smaller_is_better": self.metric in SMALLER_IS_BETTER,
            "split": self.split,
            "seeds": list(self.seeds),
            "reference": self.reference,
            "reference_model": self.reference_model,
            "paired_seeds": list(self.paired_seeds),
            "without": self.without,
            "overview": None if self.overview is None else asdict(self.overview),
            "deltas": {split: found.as_json() for split, found in self.deltas.items()},
            "clients": [row.as_json() for row in self.rows],
        }


def overview_of(values: Floats, metric: str) -> Overview | None:
    """Of the clients that have a value, be it infinite."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    from_worst = np.sort(known)[:: direction(metric)]
    lower, median, upper = percentiles(known, [25, 50, 75])
    return Overview(
        clients=len(known),
        mean=mean(known),
        std=std(known),
        bottom_decile=float(from_worst[len(known) // 10]),
        worst=float(from_worst[0]),
        best=float(from_worst[-1]),
        lower_quartile=lower,
        median=median,
        upper_quartile=upper,
    )


class Order(NamedTuple):
    """Clients from the worst to the best, and those of whom it is not known."""

    known: list[ClientRow]
    unknown: list[ClientRow]


def in_order(report: ClientReport, by: str | None = None) -> Order:
    """From the worst to the best by a metric or the delta, from few examples to many, or by name."""
    by = by or (report.metric if report.reference is None else "delta")
    if by == "name":
        return Order(sorted(report.rows, key=natural_order), [])
    if by == "examples":
        return Order(sorted(report.rows, key=training_examples), [])
    sign = direction(report.metric if by == "delta" else by)
    numbered = [(number_of(row, by, report), row) for row in report.rows]
    known = [(number, row) for number, row in numbered if not np.isnan(number)]
    ordered = [row for _, row in sorted(known, key=lambda one: sign * one[0])]
    return Order(ordered, [row for number, row in numbered if np.isnan(number)])


def number_of(row: ClientRow, by: str, report: ClientReport) -> float:
    if by == "delta":
        if report.reference is None:
            raise InvalidConfig("--sort delta needs a reference: name one with --against.")
        return np.nan if row.delta is None else row.delta
    if by not in row.values:
        raise InvalidConfig(f"--sort {by}: {did_you_mean(by, ['delta', 'examples', 'name', *row.values])}")
    return row.values[by]


def training_examples(row: ClientRow) -> int:
    return row.examples if row.member is None else row.member.train


def natural_order(row: ClientRow) -> list[tuple[int, str]]:
    """So that client 10 comes after client 9."""
    pieces = re.split(r"([0-9]+)", row.name)
    return [(int(piece), "") if place % 2 else (-1, piece) for place, piece in enumerate(pieces)]
