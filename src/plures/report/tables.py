"""Tables of runs for a terminal of 80 columns, from records alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from plures.report.scales import direction, in_percent
from plures.report.sheets import Cell, Column, Sheet, terminal_table


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run in a comparison."""

    title: str
    metric: str
    """The one it is judged by."""
    value: float | None
    """Of the model the method is judged by: all clients' test examples pooled."""
    global_value: float | None
    bottom_decile: float | None
    helped: int | None
    hurt: int | None
    num_bytes: float
    seconds: float


def row_of(title: str, result: Mapping[str, Any], helped_hurt: tuple[int, int] | None) -> Row:
    """The row of one run from its result.json."""
    own = result["metrics"].get(f"{result['headline']}/test/{result['metric']}", {})
    shared = result["metrics"].get(f"global/test/{result['metric']}", {})
    return Row(
        title=title,
        metric=str(result["metric"]),
        value=own.get("weighted"),
        global_value=shared.get("weighted"),
        bottom_decile=own.get("bottom_decile"),
        helped=None if helped_hurt is None else helped_hurt[0],
        hurt=None if helped_hurt is None else helped_hurt[1],
        num_bytes=result["cost"]["bytes_down"] + result["cost"]["bytes_up"],
        seconds=result["cost"]["seconds"],
    )


def comparison_table(rows: Sequence[Row]) -> Table:
    """Methods under each other, each as its metric is read; the best in bold, which of an error is the smallest."""
    headings = ("personal", "global", "bottom 10%", "helped", "hurt", "sent", "time")
    columns = (Column(heading="method", words=True), *(Column(heading=name) for name in headings))
    merits = [merit(row) for row in rows]
    best = max((found for found in merits if found is not None), default=None)
    cells = [row_cells(row, best is not None and found == best) for row, found in zip(rows, merits, strict=True)]
    return terminal_table(Sheet(columns=columns, rows=tuple(cells)))


def merit(row: Row) -> float | None:
    """Its value, turned so that more is better; a model that overflows has none."""
    return None if row.value is None or not math.isfinite(row.value) else direction(row.metric) * row.value


def row_cells(row: Row, best: bool) -> tuple[Cell, ...]:
    counts = ("-" if count is None else str(count) for count in (row.helped, row.hurt))
    others = (score(row.global_value, row.metric), score(row.bottom_decile, row.metric), *counts)
    costs = (readable_bytes(row.num_bytes), f"{row.seconds:.1f} s")
    own = Cell(text=score(row.value, row.metric), bold=best)
    return Cell(text=row.title), own, *(Cell(text=text) for text in (*others, *costs))


def is_missing(value: float | None) -> bool:
    return value is None or math.isnan(value)


def stages_table(stages: Sequence[Mapping[str, Any]]) -> Table:
    """The stages of a pipeline with what each came to."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("stage", "rounds", "metric"):
        table.add_column(heading, no_wrap=True)
    for heading in ("value", "gain"):
        table.add_column(heading, justify="right", no_wrap=True)
    for stage in stages:
        gain, name = stage["gain"], stage["stage"] + (" (kept)" if stage["reused"] else "")
        value, change = (score(number, stage["metric"]) for number in (stage["value"], gain))
        table.add_row(name, str(stage["rounds"]), stage["metric"], value, "" if gain is None else signed(change))
    return table


def score(value: float | None, metric: str) -> str:
    """A number as its metric is read: accuracies and shares in percent; where there is none, a dash."""
    if value is None or math.isnan(value):
        return "-"
    return percent(value) if in_percent(metric) else four_digits(value)


def named_score(name: str, value: float | None) -> str:
    """Of a metric such as personal/test/rmse: "personal rmse 1.2"; an accuracy is known by its percent sign."""
    model, metric = name.partition("/")[0], name.rpartition("/")[2]
    return f"{model} {score(value, metric)}" if metric == "accuracy" else f"{model} {metric} {score(value, metric)}"


def points(value: float, metric: str) -> str:
    """A difference as its metric is read: those of percentages are points."""
    return f"{100 * value:.1f} points" if in_percent(metric) else four_digits(value)


def signed(text: str) -> str:
    return text if text.startswith("-") else f"+{text}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def four_digits(value: float) -> str:
    """At most seven characters, so that tables keep their width."""
    text = f"{value:.4g}"
    return text if len(text) <= 7 else f"{value:.1e}"


def readable_bytes(count: float) -> str:
    """Bytes with a unit a reader can compare."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 1000:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} TB"


def readable_seconds(seconds: float) -> str:
    """A time as clocks show it: 0:07, 12:34 or 1:02:03; from two days on in days."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours / 24:.0f} days"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
