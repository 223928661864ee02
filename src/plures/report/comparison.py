"""What a comparison of labels tells, as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plures.report.bootstrap import Interval
from plures.report.infinite import mean, std
from plures.report.pairing import ClientDeltas
from plures.report.scales import SMALLER_IS_BETTER, direction


@dataclass(frozen=True, kw_only=True)
class OverSeeds:
    """One number of several runs."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def std(self) -> float:
        """Divided by their number (ddof 0)."""
        return std(self.values)

    def as_json(self) -> dict[str, Any]:
        return {"mean": self.mean, "std": self.std, "values": list(self.values)}


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A metric over clients, of one round of each run."""

    weighted: OverSeeds | None
    bottom_decile: OverSeeds | None
    worst: OverSeeds | None

    def as_json(self) -> dict[str, Any]:
        return {name: None if found is None else found.as_json() for name, found in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A label minus the reference, on the same seeds and clients."""

    seeds: tuple[int, ...]
    clients: int
    left_out: int
    per_seed: OverSeeds
    interval: Interval | None
    """None where a model overflows."""
    deltas: Mapping[str, ClientDeltas]
    """By split, those that both sides have."""

    def as_json(self) -> dict[str, Any]:
        return {
            "seeds": list(self.seeds),
            "pairs": len(self.seeds),
            "clients": self.clients,
            "left_out": self.left_out,
            "per_seed": self.per_seed.as_json(),
            "interval": None if self.interval is None else self.interval.as_json(),
            "deltas": {split: deltas.as_json() for split, deltas in self.deltas.items()},
        }


@dataclass(frozen=True, kw_only=True)
class ComparedLabel:
    """One row of a comparison."""

    label: str
    method: str
    model: str
    seeds: tuple[int, ...]
    last: Standing
    selected: Standing
    """In the rounds that are best on validation data."""
    selected_rounds: tuple[int | None, ...]
    reference_model: str | None
    """What it is compared with; None for the reference itself, and for a run without stage (a)."""
    difference: Difference | None
    """None for the reference itself, and where there is no pair."""
    relative_rounds: float | None
    num_bytes: float
    """With those of stage (a)."""
    not_counted: tuple[int, ...]
    """Seeds whose stage (a) cannot be read, so that its bytes are missing."""
    scored_once: bool
    """Whether a pipeline ends in fine-tuning, so that there are no scores of an earlier round."""

    def as_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "method": self.method,
            "model": self.model,
            "seeds": list(self.seeds),
            "last": self.last.as_json(),
            "selected": self.selected.as_json() | {"rounds": list(self.selected_rounds)},
            "reference_model": self.reference_model,
            "difference": None if self.difference is None else self.difference.as_json(),
            "relative_rounds": self.relative_rounds,
            "bytes": self.num_bytes,
            "seeds_without_bytes_of_stage_a": list(self.not_counted),
        }


@dataclass(frozen=True, kw_only=True)
class StudyComparison:
    """All labels against one reference."""

    metric: str
    split: str
    asked_model: str | None
    """None: each label is judged by that of its method."""
    reference: str
    finished: bool
    rows: tuple[ComparedLabel, ...]

    def best(self) -> set[str]:
        """The label with the best mean, and those whose mean is within one standard deviation of it.

        It is the best label's own (over seeds, ddof 0), as in the tables of Pillutla et al. 2022; of one seed it is 0.
        """
        found = {row.label: row.last.weighted for row in self.rows if row.last.weighted is not None}
        finite = {label: one for label, one in found.items() if math.isfinite(one.mean)}
        if not finite:
            return set()
        top = max(finite.values(), key=lambda one: direction(self.metric) * one.mean)
        return {label for label, one in finite.items() if abs(one.mean - top.mean) <= top.std}

    def as_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "split": self.split,
            "smaller_is_better": self.metric in SMALLER_IS_BETTER,
            "ddof": 0,
            "reference": self.reference,
            "finished": self.finished,
            "best": [row.label for row in self.rows if row.label in self.best()],
            "labels": [row.as_json() for row in self.rows],
        }
