"""Everything a page is about, read once: labels with their runs, what they are compared with, and their rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from plures.core.errors import InvalidConfig
from plures.report import records
from plures.report.comparing import (
    Asked,
    Judged,
    comparison_of,
    is_scored,
    judged_pairs,
    no_scores_text,
    pairings_of,
)
from plures.report.comparison import ComparedLabel, StudyComparison
from plures.report.infinite import Floats
from plures.report.page.palette import Style, style_of
from plures.report.pairing import Pairing
from plures.report.population import Member, read_population
from plures.report.scales import in_percent
from plures.report.selecting import select
from plures.report.studies import RecordedRun, reading

SHOWN_SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class Point:
    """A run as it stood after a round that was evaluated."""

    round: int
    num_bytes: int
    """Down and up since the start."""
    seconds: float
    metrics: Mapping[str, float]
    """All clients' examples pooled, by name; NaN where records could not hold it."""


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """One label: its runs, how they fared, and how it is drawn."""

    own: Judged
    other: Judged | None
    row: ComparedLabel
    style: Style

    @property
    def label(self) -> str:
        return self.own.series.label

    @property
    def runs(self) -> Sequence[RecordedRun]:
        return list(self.own.series.runs.values())

    @property
    def metric(self) -> str:
        return self.own.series.first.metric

    @property
    def is_reference(self) -> bool:
        return self.other is self.own

    @cached_property
    def pairings(self) -> dict[str, Pairing]:
        """With the reference, by split; the reference itself has none."""
        return {} if self.other is None or self.is_reference else pairings_of(self.own, self.other)

    @cached_property
    def names(self) -> dict[int, str]:
        """Of every client that was scored, as the records have them."""
        found = [scores for by_seed in self.own.scores.values() for scores in by_seed.values()]
        return {
            client: name for scores in found for client, name in zip(scores.clients.tolist(), scores.names, strict=True)
        }

    @cached_property
    def points(self) -> list[list[Point]]:
        """Of each run, its evaluated rounds."""
        return [read_points(run.folder) for run in self.runs]

    def curve_name(self, run: RecordedRun, metric: str) -> str:
        return f"{self.own.asked.place_of(run)}/{metric}"


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """The labels of a page, and what is common to them."""

    labels: Sequence[Labelled]
    comparison: StudyComparison
    asked: Asked
    population: Mapping[int, Member]
    """Who the clients are; empty where the first run did not record it."""
    words: tuple[str, ...] = ()
    """What a reader must know of how the runs were chosen."""

    @property
    def metric(self) -> str:
        return self.comparison.metric

    @property
    def reference(self) -> str:
        return self.comparison.reference

    @property
    def compared(self) -> list[Labelled]:
        """Those that have something to be compared with."""
        return [one for one in self.labels if one.pairings]

    @property
    def first_run(self) -> RecordedRun:
        return self.labels[0].runs[0]


def gather(
    paths: Sequence[Path], against: str | None = None, asked: Asked | None = None, *, alone: bool = False
) -> Gathered:
    """From folders on the command line, as `plures compare` takes and refuses them."""
    asked, chosen = asked or Asked(), select(paths, against, alone=alone)
    series, reference = chosen.series, chosen.reference
    if not any(is_scored(one, asked) for one in series):
        raise InvalidConfig(no_scores_text(series, asked))
    pairs = judged_pairs(series, reference, asked)
    comparison = comparison_of(pairs, reference, asked)
    labels = [
        Labelled(own=own, other=other, row=row, style=style_of(number))
        for number, ((own, other), row) in enumerate(zip(pairs, comparison.rows, strict=True))
    ]
    population = read_population(series[0].first.folder, newcomers=asked.newcomers)
    words = tuple(chosen.words())
    return Gathered(labels=labels, comparison=comparison, asked=asked, population=population, words=words)


def read_points(folder: Path) -> list[Point]:
    """Every evaluated round, with what was sent until then."""
    found: list[Point] = []
    sent = 0
    with reading(folder / records.ROUNDS):
        for line in records.read_rounds(folder):
            sent += int(line.get("bytes_down", 0)) + int(line.get("bytes_up", 0))
            if "metrics" in line:
                pooled = {name: numbers.get("weighted") for name, numbers in line["metrics"].items()}
                metrics = {name: math.nan if value is None else float(value) for name, value in pooled.items()}
                seconds = float(line.get("seconds", math.nan))
                found.append(Point(round=int(line["round"]), num_bytes=sent, seconds=seconds, metrics=metrics))
    return found


def drawn_difference(values: Floats, metric: str) -> Floats:
    """As it is drawn: of percentages in points."""
    return 100 * values if in_percent(metric) else values


def difference_title(metric: str) -> str:
    return f"difference in {metric}" + (", points" if in_percent(metric) else "")


def finite(values: Floats) -> Floats:
    """What cannot be drawn is a gap."""
    return np.where(np.isfinite(values), values, np.nan)
