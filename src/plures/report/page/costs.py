"""What runs cost: bytes, operations, memory and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plures.report.cost_tables import readable_flops
from plures.report.page.axes import axis, bytes_axis
from plures.report.page.chart import Chart, Group, Item, Missing, Section, Trace, numbers
from plures.report.page.few import plain
from plures.report.page.gathered import Gathered, Labelled
from plures.report.page.palette import LINE
from plures.report.spending import readable_stage_a
from plures.report.studies import RecordedRun
from plures.report.tables import readable_bytes


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One chart: what is counted, and of which keys of `cost` in result.json."""

    key: str
    title: str
    caption: str
    bars: Sequence[tuple[str, str]]
    """The name of a bar, and its key."""
    axis: dict[str, Any]
    tell: Callable[[float], str]
    is_peak: bool = False
    """The largest of stages counts, not their sum."""


def readable_seconds(value: float) -> str:
    return f"{value:.3g} s" if value < 1000 else f"{value / 60:,.0f} min"


KINDS = (
    Kind(
        key="bytes",
        title="Bytes sent",
        caption="Everything the wire carried in the run: down to clients (filled), and up to the server (hatched).",
        bars=(("down", "bytes_down"), ("up", "bytes_up")),
        axis=bytes_axis("bytes"),
        tell=readable_bytes,
    ),
    Kind(
        key="flops",
        title="Operations",
        caption="Floating-point operations of training, as sparse as the models were (filled), and had they been "
        "dense (hatched).",
        bars=(("as trained", "flops"), ("if dense", "dense_flops")),
        axis=axis("FLOPs", tickformat="~s"),
        tell=readable_flops,
    ),
    Kind(
        key="memory",
        title="Peak memory of a client",
        caption="The largest visit: parameters, gradients, optimiser and activations.",
        bars=(("peak", "peak_bytes"),),
        axis=bytes_axis("bytes"),
        tell=readable_bytes,
        is_peak=True,
    ),
    Kind(
        key="time",
        title="Time",
        caption="Seconds that the rounds took on the machine that ran them, without evaluation.",
        bars=(("rounds", "seconds"),),
        axis=axis("seconds", ticksuffix=" s"),
        tell=readable_seconds,
    ),
)
PATTERNS = ("", "/")
"""The second bar of a label is hatched, for it has the same colour."""


def costs_section(found: Gathered) -> Section:
    return Section(
        key="costs",
        title="Costs",
        intro="As recorded by each run, a pipeline's stage (a) included; means over seeds, whiskers from the lowest "
        "seed to the highest.",
        groups=[Group(items=[cost_chart(found, kind) for kind in KINDS])],
    )


def cost_chart(found: Gathered, kind: Kind) -> Item:
    tables = {name: [costs_of(one, key, kind) for one in found.labels] for name, key in kind.bars}
    known = {name: values for name, values in tables.items() if any(values)}
    if not known:
        return Missing(title=kind.title, why=why_not(found.first_run, kind))
    same = (
        len(known) == 2 and kind.key == "flops" and len({tuple(map(tuple, values)) for values in known.values()}) == 1
    )
    known = dict(list(known.items())[:1]) if same else known
    return Chart(
        key=f"cost-{kind.key}",
        title=kind.title,
        caption=kind.caption if not same else "Floating-point operations of training; no model was sparse.",
        traces=[bars(found, name, values, number, kind) for number, (name, values) in enumerate(known.items())],
        layout={
            "xaxis": kind.axis | {"rangemode": "tozero"},
            "yaxis": axis("", type="category", autorange="reversed", showgrid=False),
            "barmode": "group",
            "bargap": 0.3,
        },
        numbers=numbers(
            ("label", *known), [cost_row(one, known, place, kind) for place, one in enumerate(found.labels)]
        ),
        height=max(180, 100 + len(found.labels) * (26 + 12 * len(known))),
    )


def costs_of(one: Labelled, key: str, kind: Kind) -> list[float]:
    """Of each run; none as soon as one did not count."""
    values = [cost_of(run, key, kind) for run in one.runs]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


def cost_of(run: RecordedRun, key: str, kind: Kind) -> float | None:
    first = readable_stage_a(run)
    counted = [one.result["cost"].get(key) for one in (run, first) if one is not None]
    if None in counted:
        return None
    return float(max(counted)) if kind.is_peak else float(sum(counted))


def why_not(run: RecordedRun, kind: Kind) -> str:
    reason = run.result["cost"].get("not_counted")
    if reason:
        return f"It was not counted: the network could not be measured on its own ({reason})."
    return "These runs are older than this record. Repeat one: `plures run RUN/experiment.toml`."


def bars(found: Gathered, name: str, values: Sequence[Sequence[float]], number: int, kind: Kind) -> Trace:
    drawn = [(one, own) for one, own in zip(found.labels, values, strict=True) if own]
    means = np.array([np.mean(own) for _, own in drawn])
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [plain(one.label) for one, _ in drawn],
        "x": means,
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": np.array([max(own) for _, own in drawn]) - means,
            "arrayminus": means - np.array([min(own) for _, own in drawn]),
            "visible": any(len(own) > 1 for _, own in drawn),
            "thickness": 1.5,
            "color": LINE,
            "width": 3,
        },
        "marker": {"color": [one.style.colour for one, _ in drawn], "pattern": {"shape": PATTERNS[number]}},
        "customdata": [kind.tell(float(mean)) for mean in means],
        "hovertemplate": f"%{{y}}<br>{name}: %{{customdata}}<extra></extra>",
    }


def cost_row(one: Labelled, known: dict[str, list[list[float]]], place: int, kind: Kind) -> list[str | None]:
    own = [values[place] for values in known.values()]
    return [one.label, *(kind.tell(float(np.mean(values))) if values else None for values in own)]
