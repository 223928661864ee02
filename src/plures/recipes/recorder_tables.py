"""What a checkpoint keeps of the recorder, and lines of rounds.jsonl, checked key by key: files come from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from plures.evaluate import SplitName
from plures.recipes.cost_book import OPERATIONS, SUMS
from plures.recipes.tables import Table
from plures.report.records import VISIT_COLUMNS

Count = Annotated[int, Field(ge=0)]
Amount = Count | Annotated[float, Field(ge=0, allow_inf_nan=False)]
Score = Annotated[float, Field(allow_inf_nan=True)] | None
"""None, in a file, where there is no such number."""
TOTALS = {*SUMS, *OPERATIONS, "peak_bytes"}


class SummaryTable(Table):
    """One metric over clients."""

    weighted: Score
    mean: Score
    std: Score
    bottom_decile: Score
    worst: Score


class CostsTable(Table):
    """What all rounds have cost so far."""

    totals: dict[str, Amount]
    phase_seconds: dict[str, Amount]
    uncounted: str

    @field_validator("totals")
    @classmethod
    def every_total(cls, value: dict[str, Amount]) -> dict[str, Amount]:
        if set(value) != TOTALS:
            raise ValueError(f"not {', '.join(sorted(TOTALS))}")
        return value


class SelectedTable(Table):
    """The round that is best on validation data so far."""

    value: Annotated[float, Field(allow_inf_nan=False)]
    round: Count
    metrics: dict[str, SummaryTable]


class LostTable(Table):
    """A client of the cohort whose work is not in the sum."""

    client: Count
    name: str
    kind: str
    reason: str


class LineTable(BaseModel):
    """A line of rounds.jsonl; what else stands in it is a method's own."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    round: Annotated[int, Field(ge=1)]
    cohort: Annotated[list[Count], Field(strict=False)]
    lost: Annotated[list[LostTable], Field(strict=False)] = []
    losses: dict[str, Score]
    bytes_down: Count
    bytes_up: Count
    values_down: Count
    values_up: Count
    network_passes: Amount
    used: Score
    phase_seconds: dict[str, Amount]
    seconds: Amount
    flops: Amount | None
    dense_flops: Amount | None
    search_flops: Amount | None
    peak_bytes: Amount | None
    metrics: dict[str, SummaryTable] = {}
    guard: dict[str, Any] = {}
    diagnostics: dict[str, Any] = {}


class ScoreTable(Table):
    """How a client's model does right after its training."""

    client: Count
    examples: Annotated[int, Field(ge=1)]
    values: dict[str, Score]


class HalfTable(Table):
    """A round that is in force and was not evaluated yet."""

    line: dict[str, Any]
    visits: list[dict[str, str | int | float | None]]
    after_training: dict[SplitName, list[ScoreTable]]

    @field_validator("line")
    @classmethod
    def is_line(cls, value: dict[str, Any]) -> dict[str, Any]:
        """As it stands, for its keys have an order."""
        LineTable.model_validate(value)
        return value

    @field_validator("visits")
    @classmethod
    def have_columns(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if any(set(row) != set(VISIT_COLUMNS) for row in value):
            raise ValueError("not the columns of visits.csv.gz")
        return value


class RecorderTable(Table):
    """All that the files of a run do not tell."""

    costs: CostsTable
    selected: SelectedTable | None
    metrics_round: Count | None
    metrics: dict[str, SummaryTable]
    half: HalfTable | None = None

    def problem_at(self, round: int) -> str:
        """What cannot be after so many rounds, if anything."""
        selected = None if self.selected is None else self.selected.round
        rounds = {"metrics_round": self.metrics_round, "selected.round": selected}
        late = [f"{name} is {told}" for name, told in rounds.items() if told is not None and told > round]
        if self.half is not None and self.half.line["round"] != round:
            late.append(f"half.line.round is {self.half.line['round']}")
        return f"{late[0]} after {round} rounds" if late else ""


def check_history(lines: Sequence[Any], rounds: int) -> None:
    """Every round once, in order, with all that is read of it; else a ValueError."""
    for number, line in enumerate(lines, 1):
        if LineTable.model_validate(line).round != number:
            raise ValueError(f"line {number} tells of round {line['round']}")
    if len(lines) != rounds:
        raise ValueError(f"it has {len(lines)} rounds of {rounds}")
