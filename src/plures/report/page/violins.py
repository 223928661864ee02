"""How clients' differences to the reference are distributed: by label, and by the value of an option."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plures.report.infinite import Floats
from plures.report.page.axes import axis, zero_line
from plures.report.page.chart import Chart, Item, Missing, Trace, numbers
from plures.report.page.deltas import unscored_text
from plures.report.page.differing import Sweep, sweeps_of
from plures.report.page.few import plain, plains, spread
from plures.report.page.gathered import SHOWN_SPLITS, Gathered, Labelled, difference_title, drawn_difference
from plures.report.page.palette import HELPED, HURT, faint
from plures.report.pairing import Pairing
from plures.report.scales import digits_of

SPLIT_COLOURS = {"train": HURT, "test": HELPED}
MOST_IN_VIOLIN = 1_000
MOST_DOTS = 60
"""With so few clients each is a point beside its violin."""


def violin_charts(found: Gathered) -> list[Item]:
    charts = [chart for split in SHOWN_SPLITS if (chart := by_label(found, split)) is not None]
    swept = [sweep_chart(found, sweep, number) for number, sweep in enumerate(sweeps_of(found))]
    missing = Missing(title="Spread of the differences by the value of an option", why=NO_SWEEP)
    return [*charts, *(swept or [missing])]


NO_SWEEP = (
    "No two labels here have the same method and differ in one number alone, such as a strength of regularisation or a "
    "rate of dropout. Run one method with several: `plures run FILE --set method_options.lam=0.5`."
)


def by_label(found: Gathered, split: str) -> Chart | None:
    drawn = [(one, one.pairings[split]) for one in found.compared if split in one.pairings]
    if not drawn:
        return None
    return Chart(
        key=f"violin-{split}",
        title=f"Spread of the differences on {split} data",
        caption=f"Clients' differences to {found.reference}, each averaged over seeds; a box from the lower quartile "
        "to the upper, a line at the median. Point at a dot to see its client.",
        traces=[label_violin(one, pairing, found.metric) for one, pairing in drawn],
        layout={
            "xaxis": axis("", type="category", showgrid=False),
            "yaxis": axis(difference_title(found.metric), **zero_line()),
        },
        numbers=numbers(HEADING, [quartile_row(one.label, pairing, found.metric) for one, pairing in drawn]),
        wide=len(drawn) > 4,
    )


HEADING = ("", "clients", "lowest", "lower quartile", "median", "upper quartile", "highest", "mean")


def quartile_row(name: str, pairing: Pairing, metric: str) -> list[str]:
    deltas = pairing.deltas()
    told = (deltas.min, deltas.lower_quartile, deltas.median, deltas.upper_quartile, deltas.max, deltas.mean)
    digits = digits_of(metric, told)
    return [name, f"{deltas.clients:,}", *(digits.signed(value) for value in told)]


def label_violin(one: Labelled, pairing: Pairing, metric: str) -> Trace:
    values, names = chosen(one, pairing, metric)
    return violin(values, names, plain(one.label)) | {
        "name": plain(one.label),
        "meta": {"label": one.label},
        "line": {"color": one.style.colour, "width": 1.5},
        "fillcolor": one.style.fill,
    }


def chosen(one: Labelled, pairing: Pairing, metric: str) -> tuple[Floats, list[str]]:
    """Finite differences with their clients; of many, evenly spaced ones, whose quantiles are those of all."""
    values = drawn_difference(pairing.client_differences(), metric)
    known = np.flatnonzero(np.isfinite(values))
    places = known[spread(values[known], MOST_IN_VIOLIN)]
    clients = pairing.clients[places].tolist()
    return values[places], [one.names.get(client, str(client)) for client in clients]


def violin(values: Floats, names: Sequence[str], x: str) -> Trace:
    return {
        "type": "violin",
        "x": [x] * len(values),
        "y": values,
        "text": plains(names),
        "box": {"visible": True, "width": 0.18},
        "meanline": {"visible": True},
        "points": "all" if len(values) <= MOST_DOTS else "outliers",
        "pointpos": 0,
        "jitter": 0.4,
        "marker": {"size": 4, "opacity": 0.7},
        "spanmode": "hard",
        "hoveron": "points",
        "hovertemplate": "client %{text}<br>%{y:+.3~f}<extra>%{fullData.name}</extra>",
    }


def sweep_chart(found: Gathered, sweep: Sweep, number: int) -> Item:
    """The values of an option from the smallest to the largest, train and test beside each other."""
    title = f"{sweep.method}: differences by {sweep.option}"
    drawn = [
        (split, value, one, one.pairings[split])
        for split in SPLIT_COLOURS
        for value, one in sweep.members
        if split in one.pairings
    ]
    if not drawn:
        return Missing(title=title, why=unscored_text("test"))
    return Chart(
        key=f"sweep-{number}",
        title=title,
        caption=f"Clients' differences to {found.reference} for each value of {sweep.option}: on training data to the "
        "left (orange), on test data to the right (blue). Where the two part, clients learn their examples by heart.",
        traces=[split_violin(split, value, one, pairing, found.metric) for split, value, one, pairing in drawn],
        layout={
            "xaxis": axis(sweep.option, type="category", showgrid=False),
            "yaxis": axis(difference_title(found.metric), **zero_line()),
            "violinmode": "group",
        },
        numbers=numbers(
            HEADING,
            [quartile_row(f"{value:g}, {split}", pairing, found.metric) for split, value, _, pairing in drawn],
        ),
        height=360,
        wide=len(sweep.members) > 3,
    )


def split_violin(split: str, value: float, one: Labelled, pairing: Pairing, metric: str) -> Trace:
    """All of one split stand on the same side; each is as wide as the others, however far it reaches."""
    values, names = chosen(one, pairing, metric)
    return violin(values, names, f"{value:g}") | {
        "name": split,
        "offsetgroup": split,
        "alignmentgroup": "values",
        "scalegroup": f"{split} {value:g}",
        "line": {"color": SPLIT_COLOURS[split], "width": 1.5},
        "fillcolor": faint(SPLIT_COLOURS[split]),
    }
