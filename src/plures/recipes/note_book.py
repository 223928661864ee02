"""Keeps what a method tells of its clients' models: every visit by itself, and the mean of a round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from plures.core.client import Result
from plures.core.program import Program
from plures.core.visit import Visit


class NoteBook:
    """Notes of one run; of a method that makes none, nothing."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sums: dict[str, torch.Tensor] = {}
        """Of the round that is under way."""
        self.num_added = 0

    def of_visit(self, visit: Visit, result: Result) -> Mapping[str, list[float]] | None:
        """What there is to tell of a client's model right after its training, where that is to be seen."""
        if self.program.method.notes is None or not result.trained:
            return None
        noted = self.program.method.notes(self.program.binding(visit.client), result.trained, visit)
        for name, values in noted.items():
            self.sums[name] = self.sums.get(name, 0) + torch.tensor(values, dtype=torch.float64)
        self.num_added += 1
        return {name: [round(value, 6) for value in values] for name, values in noted.items()}

    def of_round(self) -> dict[str, Any]:
        """The means over the cohort, for the record of the round."""
        means = {
            name: [round(value, 6) for value in (sums / self.num_added).tolist()] for name, sums in self.sums.items()
        }
        self.sums, self.num_added = {}, 0
        return {"notes": means} if means else {}
