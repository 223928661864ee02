"""What is read of result.json, checked key by key."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from plures.recipes.recorder_tables import Count, Score, SummaryTable
from plures.recipes.tables import Table


class OpenTable(BaseModel):
    """Further keys are facts of the run."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class ChosenTable(OpenTable):
    """The round that is best on validation data."""

    round: Count | None
    by: str
    metrics: dict[str, SummaryTable]


class StageTable(Table):
    """What one stage of a pipeline came to."""

    stage: str
    rounds: Count
    metric: str
    value: Score
    gain: Score
    folder: str | None = None
    reused: bool = False


class GuardedTable(OpenTable):
    """What clients chose under a guard."""

    against: str = "global"


class ResultTable(OpenTable):
    """A result, as runs of this version write it."""

    method: str
    seed: int
    status: Literal["finished", "interrupted", "stopped", "diverged", "failed"]
    rounds_done: Count
    headline: str
    metric: str
    metrics: dict[str, SummaryTable]
    metrics_round: Count | None = None
    selected: ChosenTable
    cost: dict[str, Any]
    fingerprint: dict[str, Any]
    rounds_to: dict[str, Any] = {}
    guard: GuardedTable = GuardedTable()
    stages: list[StageTable] = []
    engine: str | None = None
