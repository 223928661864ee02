"""Who the clients are: how many examples each has, and of which labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from plures.report import records
from plures.report.infinite import Floats
from plures.report.page.axes import axis
from plures.report.page.chart import Chart, Group, Item, Missing, Section, numbers
from plures.report.page.few import evenly, plain, plains, sampled_text
from plures.report.page.gathered import Gathered
from plures.report.page.palette import GRID, HELPED, SCALE
from plures.report.population import label_counts
from plures.report.studies import reading

MOST_CLIENTS_IN_MAP = 200
MOST_LABELS = 120
NAMES_IN_BIN = 6
NOT_RECORDED = (
    "These runs have no federation.csv.gz, which says what each client has: they are older than that record, or ended "
    "before the first evaluation. Repeat one: `plures run RUN/experiment.toml`."
)


def federation_section(found: Gathered) -> Section:
    intro = "What clients have, before any training. All runs on this page have the same clients and the same examples."
    items: list[Item] = [Missing(title="Examples per client, and the label map", why=NOT_RECORDED)]
    if found.population:
        with reading(found.first_run.folder / records.FEDERATION):
            items = [examples_chart(found), label_map(found)]
    return Section(key="federation", title="The federation", intro=intro, groups=[Group(items=items)], has_labels=False)


def examples_chart(found: Gathered) -> Chart:
    sizes = np.array([member.train for member in found.population.values()])
    edges = bin_edges(sizes)
    counts, _ = np.histogram(sizes, bins=edges)
    ranges = [f"{low:,} to {high - 1:,}" for low, high in pairwise(edges)]
    return Chart(
        key="examples",
        title="Training examples per client",
        caption=f"{len(sizes):,} clients have {sizes.sum():,} training examples: {sizes.min():,} at least, "
        f"{np.median(sizes):,.0f} in the middle, {sizes.max():,} at most.",
        traces=[
            {
                "type": "bar",
                "x": (edges[:-1] + edges[1:] - 1) / 2,
                "y": counts,
                "width": np.diff(edges) * 0.96,
                "marker": {"color": HELPED},
                "customdata": ranges,
                "text": names_in_bins(found, sizes, edges),
                "textposition": "none",
                "hovertemplate": "%{customdata} examples<br>%{y:,} clients: %{text}<extra></extra>",
            }
        ],
        layout={"xaxis": axis("training examples"), "yaxis": axis("clients"), "bargap": 0},
        numbers=numbers(("training examples", "clients"), list(zip(ranges, counts.tolist(), strict=True))),
    )


def bin_edges(sizes: np.ndarray) -> np.ndarray:
    """Whole numbers, so that a bin is "from 10 to 19"."""
    low, high = int(sizes.min()), int(sizes.max())
    width = max(1, -(-(high - low + 1) // 24))
    return np.arange(low, high + width + 1, width)


def names_in_bins(found: Gathered, sizes: np.ndarray, edges: np.ndarray) -> list[str]:
    """Some of the clients in each bin."""
    places = np.digitize(sizes, edges) - 1
    clients = list(found.population)
    told = []
    for number in range(len(edges) - 1):
        inside = np.flatnonzero(places == number)
        names = ", ".join(plain(name_of(found, clients[place])) for place in inside[:NAMES_IN_BIN])
        told.append(names + (f" and {len(inside) - NAMES_IN_BIN:,} more" if len(inside) > NAMES_IN_BIN else ""))
    return told


def name_of(found: Gathered, client: int) -> str:
    return found.labels[0].names.get(client, str(client))


def label_map(found: Gathered) -> Item:
    title = "Label map"
    counts = {client: label_counts(member.train_labels) or {} for client, member in found.population.items()}
    labels = sorted({label for own in counts.values() for label in own}, key=as_number)
    if not labels:
        return Missing(title=title, why="The targets of these data are no classes, so that there are no labels to map.")
    if len(labels) > MOST_LABELS:
        why = f"The data have {len(labels):,} labels: too many for a map. federation.csv.gz has them client by client."
        return Missing(title=title, why=why)
    shares = shares_of(counts, labels)
    order = by_likeness(shares)
    order = order[evenly(len(order), MOST_CLIENTS_IN_MAP)]
    clients = list(counts)
    return map_chart(found, [clients[place] for place in order], counts, labels, shares[order])


def as_number(label: str) -> tuple[float, str]:
    try:
        return float(label), label
    except ValueError:
        return float("inf"), label


def shares_of(counts: Mapping[int, Mapping[str, int]], labels: Sequence[str]) -> Floats:
    table = np.array([[own.get(label, 0) for label in labels] for own in counts.values()], dtype=np.float64)
    shares: Floats = table / np.maximum(1, table.sum(axis=1, keepdims=True))
    return shares


def by_likeness(shares: Floats) -> np.ndarray:
    """Clients with the same most frequent label stand together, those with the purest first."""
    return np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))


def map_chart(
    found: Gathered,
    clients: Sequence[int],
    counts: Mapping[int, Mapping[str, int]],
    labels: Sequence[str],
    shares: Floats,
) -> Chart:
    names = [name_of(found, client) for client in clients]
    table = [[counts[client].get(label, 0) for label in labels] for client in clients]
    rows = [
        [name, ", ".join(f"{label}: {n}" for label, n in counts[c].items())]
        for name, c in zip(names, clients, strict=True)
    ]
    return Chart(
        key="labels",
        title="Label map",
        caption="Each row is a client: the share of its training examples that have a label. Clients are ordered by "
        f"their most frequent label.{sampled_text(len(clients), len(counts))}",
        traces=[
            {
                "type": "heatmap",
                "z": shares,
                "x": [f"{label}" for label in plains(labels)],
                "y": list(range(len(clients))),
                "customdata": table,
                "text": [[name] * len(labels) for name in plains(names)],
                "colorscale": SCALE,
                "zmin": 0,
                "zmax": 1,
                "xgap": 1 if len(labels) <= 40 else 0,
                "ygap": 1 if len(clients) <= 60 else 0,
                "colorbar": {"tickformat": ".0%", "thickness": 12, "outlinewidth": 0},
                "hovertemplate": "client %{text}<br>label %{x}: %{customdata} examples, %{z:.0%}<extra></extra>",
            }
        ],
        layout={
            "xaxis": axis("label", type="category", showgrid=False),
            "yaxis": axis("clients", showticklabels=False, showgrid=False, gridcolor=GRID),
        },
        numbers=numbers(("client", "training examples by label"), rows),
        height=380,
    )
