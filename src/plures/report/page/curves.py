"""How a metric went on: against rounds, bytes and time, each label's seeds as a mean and a band."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plures.report.infinite import Floats
from plures.report.page.axes import axis, bytes_axis, metric_axis, metric_format, round_axis, titled
from plures.report.page.chart import Chart, Group, Item, Missing, Section, Trace, numbers
from plures.report.page.few import evenly, plain
from plures.report.page.gathered import Gathered, Labelled, Point, finite
from plures.report.scales import direction
from plures.report.tables import readable_bytes, score

MOST_MARKERS = 40
MOST_ROUNDS = 600
"""Points of a curve."""


@dataclass(frozen=True, kw_only=True)
class Against:
    """What stands on the horizontal axis."""

    key: str
    title: str
    of: Callable[[Point], float]
    axis: dict[str, Any]
    hover: str
    tell: Callable[[float], str]


AGAINST = (
    Against(key="round", title="rounds", of=lambda p: p.round, axis=axis("round"), hover="round %{x:.0f}", tell=str),
    Against(
        key="bytes",
        title="bytes",
        of=lambda p: p.num_bytes,
        axis=bytes_axis(),
        hover="%{x:.3s}B sent",
        tell=readable_bytes,
    ),
    Against(
        key="time",
        title="time",
        of=lambda p: p.seconds,
        axis=axis("seconds", ticksuffix=" s"),
        hover="after %{x:.3g} s",
        tell=lambda value: f"{value:.3g} s",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A label's seeds together, in the rounds that all of them evaluated."""

    rounds: list[int]
    x: Floats
    mean: Floats
    low: Floats
    high: Floats


def curves_section(found: Gathered) -> Section:
    metrics = list(dict.fromkeys([found.metric, "loss"]))
    return Section(
        key="curves",
        title="Training",
        intro="All clients' examples pooled, of the model that each method is judged by. A line is the mean over "
        "seeds, a band goes from the lowest seed to the highest.",
        groups=[Group(items=metric_charts(found, metric)) for metric in metrics],
    )


def metric_charts(found: Gathered, metric: str) -> list[Item]:
    title = f"{titled(metric)} on {found.asked.split} data"
    curves = {one.label: {way.key: curve_of(one, metric, way) for way in AGAINST} for one in found.labels}
    if not any(curve is not None for ways in curves.values() for curve in ways.values()):
        why = (
            f"No round has the {metric} of this model on {found.asked.split} data. Rounds are evaluated as "
            "`[evaluation]` says: set `every`, and name the split in `splits`."
        )
        return [Missing(title=f"{title} against rounds, bytes and time", why=why)]
    return [
        chart_of(found, metric, way, title, [curves[one.label][way.key] for one in found.labels]) for way in AGAINST
    ]


def curve_of(one: Labelled, metric: str, way: Against) -> Curve | None:
    """Over the rounds that every seed has."""
    tables = [
        {point.round: point for point in points if one.curve_name(run, metric) in point.metrics}
        for run, points in zip(one.runs, one.points, strict=True)
    ]
    common = [round for round in tables[0] if all(round in table for table in tables)]
    if not common:
        return None
    rounds = [common[place] for place in evenly(len(common), MOST_ROUNDS)]
    x = np.array([[way.of(table[round]) for round in rounds] for table in tables], dtype=np.float64)
    names = [one.curve_name(run, metric) for run in one.runs]
    y = np.array([[table[round].metrics[name] for round in rounds] for table, name in zip(tables, names, strict=True)])
    values = finite(y)
    return Curve(
        rounds=rounds, x=x.mean(axis=0), mean=values.mean(axis=0), low=values.min(axis=0), high=values.max(axis=0)
    )


def chart_of(found: Gathered, metric: str, way: Against, title: str, curves: Sequence[Curve | None]) -> Chart:
    drawn = [(one, curve) for one, curve in zip(found.labels, curves, strict=True) if curve is not None]
    rounds = [round for _, curve in drawn for round in curve.rounds]
    better = "higher" if direction(metric) > 0 else "lower"
    return Chart(
        key=f"curve-{metric.replace('_', '-')}-{way.key}",
        title=f"{title} against {way.title}",
        caption=f"{titled(metric)} after each evaluated round; {better} is better.",
        traces=[trace for one, curve in drawn for trace in traces_of(one, curve, metric, way)],
        layout={"xaxis": round_axis(rounds) if way.key == "round" else way.axis, "yaxis": metric_axis(metric)},
        numbers=numbers(
            ("label", "last round", way.title, metric, "lowest seed", "highest seed"),
            [last_row(one, curve, metric, way) for one, curve in drawn],
        ),
    )


def last_row(one: Labelled, curve: Curve, metric: str, way: Against) -> list[str | int]:
    values = [score(float(value[-1]), metric) for value in (curve.mean, curve.low, curve.high)]
    x = curve.rounds[-1] if way.key == "round" else float(curve.x[-1])
    return [one.label, curve.rounds[-1], way.tell(x), *values]


def traces_of(one: Labelled, curve: Curve, metric: str, way: Against) -> list[Trace]:
    hover = f"{way.hover}<br>{plain(metric)} %{{y{metric_format(metric)}}}<extra>%{{fullData.name}}</extra>"
    line: Trace = {
        "type": "scatter",
        "mode": "lines+markers" if len(curve.rounds) <= MOST_MARKERS else "lines",
        "name": plain(one.label),
        "meta": {"label": one.label},
        "x": curve.x,
        "y": curve.mean,
        "cliponaxis": False,
        "line": {"color": one.style.colour, "dash": one.style.dash, "width": 2},
        "marker": {"color": one.style.colour, "symbol": one.style.sign, "size": 6},
        "hovertemplate": hover,
    }
    return [line] if len(one.runs) == 1 else [band(one, curve), line]


def band(one: Labelled, curve: Curve) -> Trace:
    """From the lowest seed to the highest, and back."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(one.label),
        "meta": {"label": one.label},
        "x": np.concatenate([curve.x, curve.x[::-1]]),
        "y": np.concatenate([curve.high, curve.low[::-1]]),
        "fill": "toself",
        "fillcolor": one.style.fill,
        "line": {"width": 0, "color": one.style.fill},
        "hoverinfo": "skip",
    }
