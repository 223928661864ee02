"""What clients' masks look like: who holds what, layer by layer, and how far they are from each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plures.report import records
from plures.report.infinite import Floats
from plures.report.page.axes import axis, round_axis
from plures.report.page.chart import Cell, Chart, Item, Trace, numbers
from plures.report.page.few import plain, plains, sampled_text
from plures.report.page.gathered import Labelled
from plures.report.page.palette import SCALE
from plures.report.page.states import Masks
from plures.report.studies import RecordedRun, reading

MOST_MAPS = 3
MOST_CELLS = 72
"""Of a mask map, along each side; larger layers are averaged in blocks."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """Masks of the clients of one run."""

    clients: Sequence[int]
    num_clients: int
    densities: Sequence[Mapping[str, float]]
    """Of each client, by parameter."""
    shares: dict[str, Floats]
    """By parameter: the share of clients that hold each coordinate."""


def mask_charts(one: Labelled, key: str) -> list[Item]:
    """Of the first seed; nothing for a method without masks."""
    run = one.runs[0]
    held, told = read_held(run), told_masks(run)
    items: list[Item] = []
    if held is not None:
        items += [density_chart(one, held, key), *map_charts(one, held, key)]
    last = next((masks for _, masks in reversed(told) if masks.get("pairs")), None)
    if last is not None and len(last["sample"]) > 1:
        items.append(distance_chart(one, last, key))
    if len(told) > 1:
        items.append(over_rounds(one, told, key))
    return items


def read_held(run: RecordedRun) -> Held | None:
    masks = Masks(run.folder)
    if not masks.clients:
        return None
    densities: list[dict[str, float]] = []
    sums: dict[str, Floats] = {}
    counts: dict[str, int] = {}
    for own in masks.read():
        densities.append({name: float(mask.mean()) for name, mask in own.items()})
        for name, mask in own.items():
            if name not in sums:
                sums[name], counts[name] = np.zeros(mask.shape), 0
            if mask.shape == sums[name].shape:  # clients may have layers of different sizes: the first one's count
                sums[name] += mask
                counts[name] += 1
    shares = {name: total / counts[name] for name, total in sums.items()}
    return Held(clients=masks.clients, num_clients=masks.num_clients, densities=densities, shares=shares)


def told_masks(run: RecordedRun) -> list[tuple[int, Mapping[str, Any]]]:
    """What rounds say of masks."""
    with reading(run.folder / records.ROUNDS):
        return [(int(line["round"]), line["masks"]) for line in records.read_rounds(run.folder) if "masks" in line]


def heat(z: Any, **more: Any) -> Trace:
    bar = {"thickness": 12, "outlinewidth": 0, "tickformat": ".0%"}
    return {"type": "heatmap", "z": z, "colorscale": SCALE, "colorbar": bar, **more}


def density_chart(one: Labelled, held: Held, key: str) -> Chart:
    layers = list(held.shares)
    names = plains([one.names.get(client, str(client)) for client in held.clients])
    table = np.array([[own.get(layer, np.nan) for layer in layers] for own in held.densities])
    rows: list[list[Cell]] = [
        [name, *(f"{value:.1%}" for value in own)] for name, own in zip(names, table, strict=True)
    ]
    return Chart(
        key=f"mask-density-{key}",
        title=f"{one.label}: what each client's mask keeps",
        caption="The share of each layer that a client's mask keeps after the last round, one row for each client."
        + sampled_text(len(held.clients), held.num_clients),
        traces=[
            heat(
                table,
                x=plains(layers),
                y=list(range(len(names))),
                text=[[name] * len(layers) for name in names],
                zmin=0,
                zmax=1,
                hovertemplate="client %{text}<br>%{x}: %{z:.1%} kept<extra></extra>",
            )
        ],
        layout={
            "xaxis": axis("", type="category", showgrid=False, tickangle=-35),
            "yaxis": axis("clients", showticklabels=False, showgrid=False),
        },
        numbers=numbers(("client", *layers), rows),
        height=360,
    )


def map_charts(one: Labelled, held: Held, key: str) -> list[Chart]:
    """Of the largest layers with two dimensions or more in which something is held by some."""
    wide = [name for name, shares in held.shares.items() if shares.ndim > 1 and np.ptp(shares) > 0]
    largest = sorted(wide, key=lambda name: -held.shares[name].size)[:MOST_MAPS]
    return [map_chart(one, name, held.shares[name], f"{key}-{number}") for number, name in enumerate(largest)]


def map_chart(one: Labelled, layer: str, shares: Floats, key: str) -> Chart:
    flat = shares.reshape(shares.shape[0], -1)
    table = in_blocks(flat)
    blocks = "" if table.shape == flat.shape else " Neighbours are averaged, for the layer is larger than the picture."
    held_by_all, held_by_none = float((flat == 1).mean()), float((flat == 0).mean())
    return Chart(
        key=f"mask-map-{key}",
        title=f"{one.label}: mask map of {layer}",
        caption=f"The share of clients that hold each weight ({' x '.join(map(str, shares.shape))}).{blocks}",
        traces=[
            heat(table, zmin=0, zmax=1, hovertemplate="output %{y}, input %{x}<br>%{z:.0%} of clients<extra></extra>")
        ],
        layout={
            "xaxis": axis("input", showgrid=False),
            "yaxis": axis("output", autorange="reversed", showgrid=False),
        },
        numbers=numbers(
            ("weights", "share"),
            [
                ("held by all clients", f"{held_by_all:.1%}"),
                ("held by some", f"{1 - held_by_all - held_by_none:.1%}"),
                ("held by none", f"{held_by_none:.1%}"),
            ],
        ),
        height=360,
    )


def in_blocks(table: Floats) -> Floats:
    """At most so many rows and columns, each the mean of what it stands for."""
    for side in (0, 1):
        if table.shape[side] > MOST_CELLS:
            parts = np.array_split(table, MOST_CELLS, axis=side)
            table = np.stack([part.mean(axis=side) for part in parts], axis=side)
    return table


def distance_chart(one: Labelled, masks: Mapping[str, Any], key: str) -> Chart:
    names = [one.names.get(int(client), str(client)) for client in masks["sample"]]
    table = np.array(masks["pairs"], dtype=np.float64)
    sampled = len(names) < int(masks["clients"])
    pairs: list[list[Cell]] = [
        [names[row], names[column], f"{table[row, column]:.1%}"]
        for row in range(len(names))
        for column in range(row + 1, len(names))
    ]
    mean = masks.get("mean")
    return Chart(
        key=f"mask-distance-{key}",
        title=f"{one.label}: distances between masks",
        caption="The share of coordinates in which two clients' masks differ (Hamming)."
        + ("" if mean is None else f" Over all pairs of {masks['clients']:,} clients the mean is {mean:.1%}.")
        + (f" {len(names)} clients, evenly spaced, are drawn." if sampled else ""),
        traces=[
            heat(
                table,
                customdata=[[f"{row} and {column}" for column in plains(names)] for row in plains(names)],
                hovertemplate="%{customdata}<br>%{z:.1%} apart<extra></extra>",
            )
        ],
        layout={
            "xaxis": axis("clients", showticklabels=False, showgrid=False),
            "yaxis": axis("clients", showticklabels=False, showgrid=False, autorange="reversed"),
        },
        numbers=numbers(("client", "client", "distance"), pairs),
        height=360,
    )


def over_rounds(one: Labelled, told: Sequence[tuple[int, Mapping[str, Any]]], key: str) -> Chart:
    rounds = [round for round, _ in told]
    lines = [("density", "solid", "circle"), ("mean", "dash", "square")]
    titles = {"density": "density", "mean": "mean distance"}
    rows: list[list[Cell]] = [
        [round, as_share(masks.get("density")), as_share(masks.get("mean"))] for round, masks in told
    ]
    return Chart(
        key=f"mask-rounds-{key}",
        title=f"{one.label}: masks over rounds",
        caption="How dense masks are, and how far two clients' masks are from each other on average.",
        traces=[
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": titles[name],
                "x": rounds,
                "y": [masks.get(name) for _, masks in told],
                "line": {"color": one.style.colour, "dash": dash},
                "marker": {"color": one.style.colour, "symbol": sign},
                "hovertemplate": f"round %{{x}}<br>{plain(titles[name])} %{{y:.1%}}<extra></extra>",
            }
            for name, dash, sign in lines
        ],
        layout={
            "xaxis": round_axis(rounds),
            "yaxis": axis("share", tickformat=".0%", rangemode="tozero"),
            "showlegend": True,
        },
        numbers=numbers(("round", "density", "mean distance"), rows),
        height=360,
    )


def as_share(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"
