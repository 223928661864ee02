"""Figures 3 to 7 of the pFedGate paper."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from plures.papers.blocks import Block, Entry, Figure, Grid, Series, Words
from plures.papers.cells import Cell
from plures.papers.outcomes import Outcome
from plures.papers.pfedgate import settings as s
from plures.papers.pfedgate.columns import PUBLISHED, Column, columns
from plures.papers.pfedgate.numbers import AFTER_ROUND, AFTER_TRAINING, extra, metric_of, paired_rows
from plures.papers.reading import entry, last, line
from plures.papers.recipe import Found, Scale

SWEEP = (1.0, 0.7, 0.5, 0.3, 0.1)
MIXED = "mixed 0.5, 0.1"
CURVES = (s.FEDAVG, s.NARROW, s.FEDEM, *s.MAIN.values())
BINS = 10
NOTHING = Words(text="Not run at this scale yet.")


def photographs(scale: Scale) -> Column:
    return columns(scale, "CIFAR-10")[0]


def drawings(scale: Scale) -> Column:
    return columns(scale, "EMNIST")[0]


def first(found: Found, cell: Cell) -> Outcome | None:
    """That of the lowest seed: a tree or a histogram is of one run."""
    outcomes = found.outcomes(cell)
    return outcomes[min(outcomes)] if outcomes else None


# Figure 3


def difference_cells(scale: Scale) -> list[Cell]:
    column = photographs(scale)
    return [s.pfedgate(column, 0.5), s.fedem(column)]


def show_differences(found: Found) -> list[Block]:
    """Client by client, s = 0.5 minus FedEM."""
    column = photographs(found.scale)
    own, reference = difference_cells(found.scale)
    drawn: dict[str, Series] = {}
    counts: dict[str, list[Entry | None]] = {}
    order: list[int] = []
    for protocol in (AFTER_ROUND, AFTER_TRAINING):
        found_pair = paired_rows(found, (own.row, own), (reference.row, reference), protocol)
        if found_pair is None:
            counts[protocol] = [Entry(), Entry(), Entry()]
            continue
        values = 100 * found_pair.client_differences()
        order = order or [int(place) for place in values.argsort()]
        names = [str(found_pair.clients[place]) for place in order]
        drawn[protocol] = Series(x=names, y=[float(values[place]) for place in order])
        counts[protocol] = [
            Entry(measured=float((values > 0).sum())),
            Entry(measured=float((values < 0).sum())),
            Entry(measured=float(values.mean())),
        ]
    grid = Grid(
        title="Clients that pFedGate with s = 0.5 helps and hurts against FedEM",
        corner="protocol",
        columns=["helped", "hurt", "mean difference"],
        rows=counts,
        digits=1,
        note="The paper prints no numbers; most bars of its figure are above 0.",
    )
    if not drawn:
        return [grid]
    picture = Figure(
        name="figure-3",
        title="Accuracy of pFedGate (s = 0.5) minus that of FedEM",
        x="client, from the worst off",
        y="points",
        panels={column.title: drawn},
        kind="bars",
    )
    return [picture, grid]


# Figure 4


def tree_cells(scale: Scale) -> list[Cell]:
    return [s.pathological(photographs(scale))]


def show_tree(found: Found) -> list[Block]:
    """The tree of gates as a table: who is joined at which distance, and which labels they share."""
    cell = tree_cells(found.scale)[0]
    accuracy: list[Entry | None] = [
        entry(found, cell, last(metric_of(cell.row))),
        entry(found, cell, last(metric_of(cell.row, AFTER_TRAINING)), PUBLISHED["figure-4"]["accuracy"]),
        entry(found, cell, extra("gate_tree", "spearman")),
        entry(found, cell, extra("gate_tree", "p_value")),
    ]
    heads = [f"accuracy, {AFTER_ROUND}", f"accuracy, {AFTER_TRAINING}", "Spearman", "p"]
    note = (
        "Spearman's correlation of the distance of two gates with that of their clients' label sets (Jaccard), and "
        "the share of permutations of clients that have one as large."
    )
    grid = Grid(
        title="Ten clients with two shards each, s = 0.3", columns=heads, rows={cell.column: accuracy}, note=note
    )
    run = first(found, cell)
    tree = {} if run is None else run.extras.get("gate_tree", {})
    return [grid, merges(tree)] if tree else [grid, NOTHING]


def merges(tree: Mapping[str, Any]) -> Grid:
    """Scipy's linkage, line by line."""
    clients = list(tree["clients"])
    labels = {client: set(tree["labels"][str(client)]) for client in clients}
    groups: list[list[int]] = [[client] for client in clients]
    rows: dict[str, list[Entry | None]] = {}
    for number, (left, right, distance, _) in enumerate(tree["tree"], start=1):
        joined = sorted(groups[int(left)] + groups[int(right)])
        groups.append(joined)
        common = sorted(set.intersection(*(labels[client] for client in joined)))
        rows[str(number)] = [
            Entry(measured=" ".join(map(str, joined))),
            Entry(measured=float(distance)),
            Entry(measured=" ".join(map(str, common)) or "none"),
        ]
    owned = "; ".join(f"{client}: {' '.join(map(str, sorted(labels[client])))}" for client in tree["order"])
    return Grid(
        title="Clients by the distance of their gates (Ward)",
        corner="step",
        columns=["joined clients", "distance", "labels in common"],
        rows=rows,
        note=f"Labels of each client, in the order of the tree: {owned}.",
    )


# Figure 5


def sweep_cells(scale: Scale) -> list[Cell]:
    column = drawings(scale)
    return [*(s.pfedgate(column, density) for density in SWEEP), s.mixed_gates(column)]


def show_sweep(found: Found) -> list[Block]:
    """Accuracy, spread over clients and density by s."""
    column, cells = drawings(found.scale), sweep_cells(found.scale)
    rows: dict[str, list[Entry | None]] = {}
    drawn: dict[str, dict[str, float]] = {AFTER_ROUND: {}, AFTER_TRAINING: {}}
    for name, cell in zip([*(f"{density:g}" for density in SWEEP), MIXED], cells, strict=True):
        own, trained = (metric_of(cell.row, protocol) for protocol in (AFTER_ROUND, AFTER_TRAINING))
        rows[name] = [
            entry(found, cell, last(own)),
            entry(found, cell, last(own, "bottom_decile")),
            entry(found, cell, last(own, "std")),
            entry(found, cell, last(trained)),
            entry(found, cell, extra("gate_history", "density")),
        ]
        for protocol, metric in ((AFTER_ROUND, own), (AFTER_TRAINING, trained)):
            value = entry(found, cell, last(metric)).measured
            if isinstance(value, float):
                drawn[protocol][name] = value
    heads = ["mean", "bottom decile", "spread over clients", f"mean, {AFTER_TRAINING}", "kept s'"]
    note = (
        "The paper shows this as a figure without numbers. At s = 0.1 the pieces that are always kept take all of "
        "the capacity, so that gates have nothing to choose. Of the last layer they are the first tenth of its "
        "weights, which is the row of the first class: the other nine are never told apart."
    )
    grid = Grid(title=f"pFedGate by s, {column.title}", corner="s", columns=heads, rows=rows, note=note)
    series = {name: Series(x=list(values), y=list(values.values())) for name, values in drawn.items() if values}
    if not series:
        return [grid]
    picture = Figure(
        name="figure-5",
        title="Accuracy of pFedGate by s",
        x="s",
        y="accuracy in %",
        panels={column.title: series},
        kind="points",
    )
    return [picture, grid]


# Figure 6


def curve_cells(scale: Scale) -> list[Cell]:
    return [s.main_cell(drawings(scale), row) for row in CURVES]


def show_curves(found: Found) -> list[Block]:
    """Accuracy over rounds, under both protocols."""
    panels: dict[str, dict[str, Series]] = {}
    for protocol in (AFTER_ROUND, AFTER_TRAINING):
        drawn = {cell.row: line(found, cell, metric_of(cell.row, protocol)) for cell in curve_cells(found.scale)}
        panels[protocol] = {name: one for name, one in drawn.items() if one is not None}
    if not any(panels.values()):
        return [NOTHING]
    title = f"Test accuracy over rounds, {drawings(found.scale).title}"
    return [Figure(name="figure-6", title=title, x="round", y="accuracy in %", panels=panels)]


# Figure 7


def histogram_cells(scale: Scale) -> list[Cell]:
    return [s.pfedgate(photographs(scale), 0.5)]


def show_histograms(found: Found) -> list[Block]:
    """How many blocks have which mean gate weight, over rounds, and how much that still changes."""
    cell = histogram_cells(found.scale)[0]
    run = first(found, cell)
    history = {} if run is None else run.extras.get("gate_history", {})
    if not history:
        return [NOTHING]
    centres = [(number + 0.5) / BINS for number in range(BINS)]
    rounds, shares = history["rounds"], history["gate_weights"]
    drawn = {f"round {round}": Series(x=centres, y=share) for round, share in zip(rounds, shares, strict=True)}
    moved = [sum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2 for one, other in pairwise(shares)]
    changes: list[Entry | None] = [Entry(measured=one) for one in moved]
    heads = [f"{one} to {other}" for one, other in pairwise(rounds)]
    return [
        Figure(
            name="figure-7",
            title="Blocks by their mean gate weight, all clients, s = 0.5",
            x="gate weight",
            y="share of blocks",
            panels={cell.column: drawn},
        ),
        Grid(
            title="Share of blocks that changed their tenth",
            corner="rounds",
            columns=heads,
            rows={cell.column: changes},
        ),
    ]
