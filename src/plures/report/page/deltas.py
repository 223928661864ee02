"""Whom a method helps and hurts: each client's difference to the reference against how many examples it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plures.report.infinite import Floats
from plures.report.page.axes import axis, log_if_wide, room, zero_line
from plures.report.page.chart import Cell, Chart, Group, Item, Missing, Trace, numbers
from plures.report.page.few import MOST_POINTS, plain, plains, sampled_text, spread
from plures.report.page.gathered import SHOWN_SPLITS, Gathered, Labelled, difference_title, drawn_difference
from plures.report.page.palette import HELPED, HELPED_SIGN, HURT, HURT_SIGN, LINE, SAME, SAME_SIGN
from plures.report.pairing import ClientDeltas, Pairing
from plures.report.population import Member
from plures.report.scales import digits_of, direction

KINDS = (("helped", 1, HELPED, HELPED_SIGN), ("hurt", -1, HURT, HURT_SIGN), ("same", 0, SAME, SAME_SIGN))
WITHOUT_REFERENCE = (
    "There is nothing to compare with. Give a second method or its study, such as `plures report RUN runs/fedavg`, or "
    "run both at once: `plures run FILE --beside fedavg`."
)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The clients of one label on one split."""

    label: Labelled
    split: str
    pairing: Pairing
    values: Floats
    """Own minus reference, averaged over seeds, as it is drawn."""
    examples: Floats

    @property
    def deltas(self) -> ClientDeltas:
        return self.pairing.deltas()

    @property
    def names(self) -> list[str]:
        known = self.label.names
        return [known.get(client, str(client)) for client in self.pairing.clients.tolist()]


def delta_groups(found: Gathered) -> list[Group]:
    """For each split one panel for each label, all with the same axes."""
    if not found.compared:
        return [
            Group(
                title="Helped and hurt",
                items=[Missing(title="Clients helped and hurt, and the spread of differences", why=WITHOUT_REFERENCE)],
            )
        ]
    return [Group(title=f"Helped and hurt on {split} data", items=split_items(found, split)) for split in SHOWN_SPLITS]


def split_items(found: Gathered, split: str) -> list[Item]:
    panels = [panel for panel in panels_of(found) if panel.split == split]
    missing = Missing(title=f"Differences on {split} data", why=unscored_text(split))
    return [panel_chart(panel, found, panels) for panel in panels] or [missing]


def unscored_text(split: str) -> str:
    return f'Clients were not scored on their {split} data in both runs: put "{split}" into `splits` of [evaluation].'


def panels_of(found: Gathered) -> list[Panel]:
    return [
        Panel(
            label=one,
            split=split,
            pairing=pairing,
            values=drawn_difference(pairing.client_differences(), found.metric),
            examples=training_examples(pairing, found.population),
        )
        for split in SHOWN_SPLITS
        for one in found.compared
        if (pairing := one.pairings.get(split)) is not None
    ]


def training_examples(pairing: Pairing, population: Mapping[int, Member]) -> Floats:
    """What clients train on; where that was not recorded, what they were scored on."""
    pairs = zip(pairing.clients.tolist(), pairing.examples.tolist(), strict=True)
    return np.array([population[client].train if client in population else scored for client, scored in pairs])


def panel_chart(panel: Panel, found: Gathered, alike: Sequence[Panel]) -> Chart:
    """`alike`: the panels with the same axes."""
    everything = np.concatenate([one.values[np.isfinite(one.values)] for one in alike])
    low, high = (everything.min(), everything.max()) if len(everything) else (0.0, 0.0)
    spaces = log_if_wide(np.concatenate([one.examples for one in alike]).tolist())
    label, shown = panel.label.label, drawable(panel)
    return Chart(
        key=f"delta-{panel.split}-{found.labels.index(panel.label)}",
        title=f"{label} minus {found.reference}, {panel.split} data",
        caption=told(panel, found) + sampled_text(len(shown), len(panel.values)),
        traces=[*kind_traces(panel, shown, found.metric), mean_trace(panel, found.metric)],
        layout={
            "xaxis": axis("training examples of the client", **spaces),
            "yaxis": axis(difference_title(found.metric), range=room(min(0, low), max(0, high)), **zero_line()),
        },
        numbers=numbers(("client", "training examples", "difference"), rows_of(panel, found.metric)),
    )


def drawable(panel: Panel) -> NDArray[np.int64]:
    """Places of the clients that are drawn; an infinite difference has no place."""
    known = np.flatnonzero(np.isfinite(panel.values))
    places: NDArray[np.int64] = known[spread(panel.values[known], MOST_POINTS)]
    return places


def told(panel: Panel, found: Gathered) -> str:
    deltas = panel.deltas
    mean = digits_of(found.metric, [deltas.mean]).signed(deltas.mean)
    unit = " points" if difference_title(found.metric).endswith("points") else ""
    text = (
        f"{deltas.helped:,} of {deltas.clients:,} clients helped, {deltas.hurt:,} hurt, {deltas.same:,} the same; mean "
        f"over clients {mean}{unit} (the dashed line)."
    )
    infinite = int((~np.isfinite(panel.values)).sum())
    return text + (f" {infinite:,} with an infinite difference are not drawn." if infinite else "")


def kind_traces(panel: Panel, shown: NDArray[np.int64], metric: str) -> list[Trace]:
    gains, names = np.sign(direction(metric) * panel.values[shown]), panel.names
    traces = []
    for kind, sign, colour, symbol in KINDS:
        places = shown[gains == sign]
        if len(places):
            traces.append(kind_trace(panel, places, names, kind, colour, symbol))
    return traces


def kind_trace(
    panel: Panel, places: NDArray[np.int64], names: Sequence[str], kind: str, colour: str, symbol: str
) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": kind,
        "x": panel.examples[places],
        "y": panel.values[places],
        "text": plains([names[place] for place in places]),
        "marker": {"color": colour, "symbol": symbol, "size": 8 if len(panel.values) <= 400 else 5, "opacity": 0.8},
        "hovertemplate": f"client %{{text}}<br>%{{x:,}} examples<br>%{{y:+.3~f}}<extra>{kind}</extra>",
    }


def mean_trace(panel: Panel, metric: str) -> Trace:
    mean = float(drawn_difference(np.array(panel.deltas.mean), metric))
    known = panel.examples[np.isfinite(panel.examples)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "mean",
        "x": [float(known.min()), float(known.max())] if len(known) else [],
        "y": [mean, mean] if np.isfinite(mean) else [None, None],
        "line": {"color": LINE, "dash": "dash", "width": 1.5},
        "hovertemplate": f"mean of {plain(panel.label.label)}: %{{y:+.3~f}}<extra></extra>",
    }


def rows_of(panel: Panel, metric: str) -> list[list[Cell]]:
    """From the client that is hurt most to the one that is helped most."""
    order = np.argsort(direction(metric) * panel.values, kind="stable")
    names = panel.names
    return [[names[place], int(panel.examples[place]), f"{panel.values[place]:+.4g}"] for place in order]
