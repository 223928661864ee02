"""What clients' gates look like: how blocks are weighed, and which clients' gates are alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plures.report import records
from plures.report.gates import read_gates
from plures.report.infinite import Floats
from plures.report.page.axes import axis
from plures.report.page.chart import Cell, Chart, Item, Missing, numbers
from plures.report.page.few import evenly, plains, sampled_text
from plures.report.page.gathered import Labelled
from plures.report.page.palette import SAME
from plures.report.studies import RecordedRun, reading

WEIGHTS, KEPT = "gate_weights", "blocks_kept"
MOST_LEAVES = 120


def gate_charts(one: Labelled, key: str) -> list[Item]:
    """Of the first seed; nothing for a method without gates."""
    told = told_gates(one.runs[0])
    if not told:
        return []
    return [histogram(one, told, key), dendrogram_chart(one, key)]


def told_gates(run: RecordedRun) -> list[tuple[int, Mapping[str, Sequence[float]]]]:
    """What rounds say of gates: means over their cohorts."""
    with reading(run.folder / records.ROUNDS):
        lines = records.read_rounds(run.folder)
        return [(int(line["round"]), line["notes"]) for line in lines if WEIGHTS in line.get("notes", {})]


def histogram(one: Labelled, told: Sequence[tuple[int, Mapping[str, Sequence[float]]]], key: str) -> Chart:
    """The first round and the last."""
    shown = [told[0], told[-1]] if len(told) > 1 else [told[0]]
    count = len(shown[0][1][WEIGHTS])
    middles = [(number + 0.5) / count for number in range(count)]
    kept = told[-1][1].get(KEPT, [float("nan")])[0]
    styles = [{"color": SAME}, {"color": one.style.colour}][-len(shown) :]
    rows: list[list[Cell]] = [
        [
            f"{number / count:.1f} to {(number + 1) / count:.1f}",
            *(f"{notes[WEIGHTS][number]:.1%}" for _, notes in shown),
        ]
        for number in range(count)
    ]
    return Chart(
        key=f"gate-histogram-{key}",
        title=f"{one.label}: weights that gates give to blocks",
        caption=f"Blocks of the network by the weight that a gate gives them, mean over the clients of a round. In the "
        f"last round clients kept {kept:.0%} of their blocks.",
        traces=[
            {
                "type": "bar",
                "name": f"round {round}",
                "x": middles,
                "y": list(notes[WEIGHTS]),
                "marker": style,
                "hovertemplate": f"weight %{{x:.2f}}<br>%{{y:.1%}} of blocks<extra>round {round}</extra>",
            }
            for (round, notes), style in zip(shown, styles, strict=True)
        ],
        layout={
            "xaxis": axis("weight of a block", range=[0, 1]),
            "yaxis": axis("share of blocks", tickformat=".0%"),
            "barmode": "group",
            "bargap": 0.1,
            "showlegend": True,
        },
        numbers=numbers(("weight", *(f"round {round}" for round, _ in shown)), rows),
        height=360,
    )


def dendrogram_chart(one: Labelled, key: str) -> Item:
    title = f"{one.label}: clients whose gates are alike"
    path = one.runs[0].folder / records.PERSONAL
    gates = read_gates(path) if path.is_file() else {}
    sizes = {len(vector) for vector in gates.values()}
    if len(gates) < 3 or len(sizes) > 1:
        why = (
            "A tree needs gates of the same size of three clients at least; these clients keep none, or different ones."
        )
        return Missing(title=title, why=why)
    everybody = sorted(gates)
    clients = [everybody[place] for place in evenly(len(everybody), MOST_LEAVES)]
    return tree_chart(one, title, clients, np.stack([gates[client] for client in clients]), len(everybody), key)


def tree_chart(one: Labelled, title: str, clients: Sequence[int], points: Floats, count: int, key: str) -> Chart:
    from scipy.cluster.hierarchy import dendrogram, linkage  # takes half a second, and few pages need it

    tree = dendrogram(linkage(points, "ward"), no_plot=True)
    names = [one.names.get(clients[leaf], str(clients[leaf])) for leaf in tree["leaves"]]
    return Chart(
        key=f"gate-tree-{key}",
        title=title,
        caption="Ward's tree on Euclidean distances: two clients, or two groups, are joined at the height of their "
        "distance. `plures gates` tells whether clients with like gates have like labels."
        + sampled_text(len(clients), count),
        traces=[*branches(tree, one), leaves(names, one)],
        layout={
            "xaxis": axis("clients", showticklabels=False, showgrid=False, ticks=""),
            "yaxis": axis("distance of gates", rangemode="tozero"),
        },
        numbers=numbers(("place from the left", "client"), [[place, name] for place, name in enumerate(names, 1)]),
        height=360,
    )


def branches(tree: Mapping[str, Any], one: Labelled) -> list[dict[str, Any]]:
    """All of them as one line with gaps."""
    pairs = list(zip(tree["icoord"], tree["dcoord"], strict=True))
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [value for xs, _ in pairs for value in (*map(leaf_place, xs), None)],
            "y": [value for _, ys in pairs for value in (*ys, None)],
            "line": {"color": one.style.colour, "width": 1.5},
            "hoverinfo": "skip",
        }
    ]


def leaf_place(x: float) -> float:
    """Scipy puts the first leaf at 5 and the others 10 apart; here they are numbered from 1."""
    return (x + 5) / 10


def leaves(names: Sequence[str], one: Labelled) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(range(1, len(names) + 1)),
        "y": [0] * len(names),
        "text": plains(names),
        "marker": {"color": one.style.colour, "symbol": "circle", "size": 6},
        "hovertemplate": "client %{text}<extra></extra>",
    }
