"""What each run came to, against what it sent and against how much of the model is personal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from plures.report.page.axes import axis, bytes_axis, log_if_wide, metric_axis, metric_format, metric_range
from plures.report.page.chart import Chart, Group, Item, Missing, Section, Trace, numbers
from plures.report.page.few import plain
from plures.report.page.gathered import Gathered, Labelled
from plures.report.spending import bytes_sent
from plures.report.standings import last_summary
from plures.report.studies import RecordedRun
from plures.report.tables import readable_bytes, score


class End(NamedTuple):
    """One run."""

    label: Labelled
    seed: int
    x: float
    value: float


def finals_section(found: Gathered) -> Section:
    return Section(
        key="finals",
        title="What it takes",
        intro="One point for each run, as it stood in its last evaluated round.",
        groups=[Group(items=[against_bytes(found), against_parameters(found)])],
    )


def against_bytes(found: Gathered) -> Item:
    ends = ends_of(found, bytes_sent)
    title = f"Final {found.metric} against total bytes"
    if not ends:
        return Missing(title=title, why=f"No run has the {found.metric} on {found.asked.split} data.")
    caption = "Everything sent up and down, with stage (a) of a pipeline. Up and to the left is better."
    if found.comparison.as_json()["smaller_is_better"]:
        caption = caption.replace("Up and to the left", "Down and to the left")
    wide = bytes_axis(**log_if_wide([end.x for end in ends]))
    return scatter("final-bytes", title, caption, ends, wide, found.metric, "%{x:.3s}B sent", ("bytes", readable_bytes))


def against_parameters(found: Gathered) -> Item:
    ends = ends_of(found, personal_parameters)
    title = f"Final {found.metric} against personal parameters"
    if not ends:
        why = (
            "These runs did not record how many parameters a client keeps for itself: they are older than that record, "
            "`parameters` in result.json. Repeat one: `plures run RUN/experiment.toml`."
        )
        return Missing(title=title, why=why)
    caption = (
        "Numbers that a client trains and keeps for itself; masks are not counted. A method whose personal model is a "
        "fine-tuned copy keeps none."
    )
    wide = axis("personal parameters", tickformat="~s", **log_if_wide([end.x for end in ends]))
    hover = "%{x:,.0f} personal parameters"
    return scatter(
        "final-parameters", title, caption, ends, wide, found.metric, hover, ("parameters", "{:,.0f}".format)
    )


def ends_of(found: Gathered, of: Callable[[RecordedRun], float | None]) -> list[End]:
    ends = []
    for one in found.labels:
        for run in one.runs:
            value, x = last_summary(run, one.own.asked.place_of(run)).get("weighted"), of(run)
            if value is not None and math.isfinite(value) and x is not None:
                ends.append(End(one, run.seed, x, value))
    return ends


def personal_parameters(run: RecordedRun) -> int | None:
    count = run.result.get("parameters", {}).get("personal")
    return None if count is None else int(count)


def scatter(
    key: str,
    title: str,
    caption: str,
    ends: Sequence[End],
    xaxis: dict[str, Any],
    metric: str,
    hover: str,
    told: tuple[str, Callable[[float], str]],
) -> Chart:
    name, tell = told
    values = [end.value for end in ends]
    labels = list(dict.fromkeys(end.label.label for end in ends))
    return Chart(
        key=key,
        title=title,
        caption=caption,
        traces=[trace_of([end for end in ends if end.label.label == label], metric, hover) for label in labels],
        layout={
            "xaxis": {"rangemode": "tozero"} | xaxis,
            "yaxis": metric_axis(metric, range=metric_range(metric, min(values), max(values))),
        },
        numbers=numbers(
            ("label", "seed", name, metric),
            [(end.label.label, end.seed, tell(end.x), score(end.value, metric)) for end in ends],
        ),
    )


def trace_of(ends: Sequence[End], metric: str, hover: str) -> Trace:
    one = ends[0].label
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(one.label),
        "meta": {"label": one.label},
        "x": [end.x for end in ends],
        "y": [end.value for end in ends],
        "text": [f"seed {end.seed}" for end in ends],
        "cliponaxis": False,
        "marker": {"color": one.style.colour, "symbol": one.style.sign, "size": 11, "opacity": 0.85},
        "hovertemplate": f"%{{text}}<br>{hover}<br>{plain(metric)} %{{y{metric_format(metric)}}}"
        "<extra>%{fullData.name}</extra>",
    }
