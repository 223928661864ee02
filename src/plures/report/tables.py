"""Tables of runs for a terminal of 80 columns, from records alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from plures.report.scales import in_percent


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run in a comparison."""

    title: str
    accuracy: float | None
    """Of the model the method is judged by: all clients' test examples pooled."""
    global_accuracy: float | None
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
        accuracy=own.get("weighted"),
        global_accuracy=shared.get("weighted"),
        bottom_decile=own.get("bottom_decile"),
        helped=None if helped_hurt is None else helped_hurt[0],
        hurt=None if helped_hurt is None else helped_hurt[1],
        num_bytes=result["cost"]["bytes_down"] + result["cost"]["bytes_up"],
        seconds=result["cost"]["seconds"],
    )


def comparison_table(rows: Sequence[Row], *, caption: str | None = None) -> Table:
    """Methods under each other; accuracies in percent."""
    table = Table(caption=caption, caption_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("method", no_wrap=True)
    for heading in ("personal", "global", "bottom 10%", "helped", "hurt", "sent", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    best = max((row.accuracy for row in rows if row.accuracy is not None), default=None)
    for row in rows:
        table.add_row(
            row.title,
            emphasised(percent(row.accuracy), row.accuracy == best),
            percent(row.global_accuracy),
            percent(row.bottom_decile),
            "-" if row.helped is None else str(row.helped),
            "-" if row.hurt is None else str(row.hurt),
            readable_bytes(row.num_bytes),
            f"{row.seconds:.1f} s",
        )
    return table


def metrics_table(metrics: Mapping[str, Mapping[str, float]]) -> Table:
    """Every metric of one run with its numbers over clients, under the model and split that it is of."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("model, split and metric", no_wrap=True)
    keys = ("weighted", "mean", "std", "bottom_decile", "worst")
    for heading in ("weighted", "mean", "std", "decile", "worst"):
        table.add_column(heading, justify="right", no_wrap=True)
    above = ""
    for name, numbers in metrics.items():
        of, _, metric = name.rpartition("/")
        if is_missing(numbers["weighted"]):
            continue  # no client has it, such as an AUC where all have one class
        if of != above:
            table.add_row(f"[bold]{of}[/bold]")
            above = of
        table.add_row(f"  {metric}", *(score(numbers[key], metric) for key in keys))
    return table


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


def emphasised(text: str, best: bool) -> str:
    return f"[bold]{text}[/bold]" if best else text


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
