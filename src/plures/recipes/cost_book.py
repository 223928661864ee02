"""Keeps the costs of a run: totals in memory, and every visit as a row for the run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from plures.core.client import REFRESH, Result
from plures.core.context import RoundReport
from plures.core.program import Program
from plures.core.visit import Visit
from plures.evaluate.costs import CostMeter, VisitCost
from plures.report.records import VISIT_COLUMNS

SUMS = ("bytes_down", "bytes_up", "values_down", "values_up", "network_passes")
OPERATIONS = ("flops", "dense_flops", "search_flops")


class CostBook:
    """What a run costs, visit by visit and in all."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.meter: CostMeter | None = CostMeter(program)
        self.uncounted = ""
        """Why operations and memory are not counted, if so."""
        self.totals: dict[str, float] = dict.fromkeys((*SUMS, *OPERATIONS, "peak_bytes"), 0)
        self.phase_seconds: dict[str, float] = {}
        self.rows: list[dict[str, Any]] = []
        """Of the round that is under way."""

    def add(self, visit: Visit, result: Result, notes: Mapping[str, list[float]] | None = None) -> None:
        cost = self._cost(visit, result)
        row = {
            "round": visit.round,
            "client": visit.client,
            "name": visit.name,
            "examples": visit.facts.examples,
            "capacity": visit.capacity,
            "bytes_down": visit.down.num_bytes,
            "bytes_up": result.up.num_bytes,
            "values_down": visit.down.num_values,
            "values_up": result.up.num_values,
            "upload_share": upload_share(result),
            **({} if cost is None else cost.as_row()),
            "seconds": round(sum(result.seconds.values()), 6),
            "refresh_seconds": round(result.seconds.get(REFRESH, 0.0), 6),
            "phase_seconds": json.dumps(rounded(result.seconds)),
            "notes": json.dumps(notes) if notes else None,
        }
        self.rows.append({column: row.get(column) for column in VISIT_COLUMNS})

    def _cost(self, visit: Visit, result: Result) -> VisitCost | None:
        if self.meter is None:
            return None
        try:
            return self.meter.of_visit(visit, result)
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            # A network may refuse to be measured on its own; that is no reason to stop a run.
            self.meter, self.uncounted = None, f"{type(error).__name__}: {error}"
            return None

    def close_round(self, report: RoundReport) -> tuple[dict[str, float | None], list[dict[str, Any]]]:
        """The operations and the memory of a whole round, and its visits; the totals take them in."""
        rows, self.rows = self.rows, []
        counted = self.meter is not None
        sums = {name: sum(row[name] for row in rows) if counted else None for name in OPERATIONS}
        peak = max((row["peak_bytes"] for row in rows), default=0) if counted else None
        for name in SUMS:
            self.totals[name] += getattr(report, name)
        for name in OPERATIONS:
            self.totals[name] += sums[name] or 0
        self.totals["peak_bytes"] = max(self.totals["peak_bytes"], peak or 0)
        for phase, seconds in report.phase_seconds.items():
            self.phase_seconds[phase] = self.phase_seconds.get(phase, 0.0) + seconds
        return {**sums, "peak_bytes": peak}, rows

    def told(self) -> dict[str, Any]:
        """For a checkpoint, between rounds."""
        return {"totals": self.totals, "phase_seconds": self.phase_seconds, "uncounted": self.uncounted}

    def restore(self, told: Mapping[str, Any]) -> None:
        """As it was at a checkpoint."""
        self.totals, self.phase_seconds = dict(told["totals"]), dict(told["phase_seconds"])
        self.uncounted = told["uncounted"]
        if self.uncounted:
            self.meter = None

    def result(self, seconds: float) -> dict[str, Any]:
        """For result.json."""
        unknown: dict[str, Any] = {}
        if self.meter is None:
            unknown = {**dict.fromkeys((*OPERATIONS, "peak_bytes")), "not_counted": self.uncounted}
        phases = rounded(self.phase_seconds)
        return {**self.totals, **unknown, "seconds": round(seconds, 3), "phase_seconds": phases}


def rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    """To microseconds."""
    return {phase: round(value, 6) for phase, value in seconds.items()}


def upload_share(result: Result) -> float | None:
    """The share of what could be uploaded that was; None where that is nothing."""
    values, held = result.upload
    whole = sum(value.numel() for value in values.values())
    if not whole:
        return None
    return 1.0 if held is None else sum(int(torch.count_nonzero(held[name])) for name in values) / whole
