"""Figures 3 to 10: gains over parameters, sizes of clients, and what personalisation does to each client."""

from __future__ import annotations

from functools import partial

import numpy as np

from plures.papers.blocks import Block, Entry, Figure, Grid, Series, Words
from plures.papers.cells import Cell
from plures.papers.fedalt.counts import counts, total
from plures.papers.fedalt.deltas import Runs, change, counted, scatter, violins
from plures.papers.fedalt.settings import (
    DITTO,
    DROPOUT,
    FEDALT,
    FINETUNE,
    L2,
    PFEDME,
    cell_of,
    dropout_key,
    key,
    l2_key,
)
from plures.papers.fedalt.tables import ALL_TASKS, FIRST, TUNED
from plures.papers.fedalt.tasks import ADAPTER, EMNIST, GLDV2, OUTPUT, PARTS, STACKOVERFLOW, UNIPEN, shown
from plures.papers.fedalt.words import stands_for
from plures.papers.outcomes import Outcome
from plures.papers.published import load
from plures.papers.reading import entry
from plures.papers.recipe import Found, Scale

FULL, PARTIAL = "Full", "Partial"


def device_task(scale: Scale) -> str:
    """Whose clients are looked at: StackOverflow's in the paper, else those of the stand-in for EMNIST."""
    return STACKOVERFLOW if scale == "full" else EMNIST


def second_task(scale: Scale) -> str:
    return GLDV2 if scale == "full" else UNIPEN


def gain_of(outcome: Outcome) -> float:
    return TUNED(outcome) - FIRST(outcome)


def personal_parameters(outcome: Outcome, *, whole: bool) -> float:
    """What a client keeps to itself; of a model that is fine-tuned as a whole, all of it."""
    known = outcome.facts.get("parameters", {})
    return float(known.get("shared", 0) if whole else known.get("personal", 0))


def show_3(found: Found) -> list[Block]:
    accuracy = load("fedalt")["table-3"]["accuracy"]
    blocks: list[Block] = []
    panels: dict[str, dict[str, Series]] = {}
    for task in ALL_TASKS:
        rows: dict[str, list[Entry | None]] = {}
        dots: dict[str, list[tuple[float, float]]] = {PARTIAL: [], FULL: []}
        for label in (*PARTS, FULL):
            whole = label == FULL
            cell = cell_of(found.scale, task, FINETUNE if whole else key(FEDALT, label))
            known = accuracy.get(task)
            rise = None if known is None else known[FINETUNE if whole else label] - known["FedAvg"]
            size = None if known is None else (total(task) if whole else counts(task, label)[0])
            held = entry(found, cell, partial(personal_parameters, whole=whole), size)
            rose = entry(found, cell, gain_of, rise)
            if cell is not None or known is not None:
                rows[label] = [held, rose]
            if isinstance(held.measured, float) and isinstance(rose.measured, float):
                dots[FULL if whole else PARTIAL].append((held.measured, rose.measured))
        if rows:
            blocks.append(
                Grid(
                    title=f"Gain and size: {shown(task, found.scale)}",
                    columns=["personal parameters", "gain, points"],
                    rows=rows,
                )
            )
        drawn = {name: Series(x=[x for x, _ in some], y=[y for _, y in some]) for name, some in dots.items() if some}
        if drawn:
            panels[shown(task, found.scale)] = drawn
    if panels:
        title = "Gain over FedAvg, and parameters that clients keep"
        blocks.append(
            Figure(
                name="figure-3", title=title, x="personal parameters", y="gain, points", panels=panels, kind="points"
            )
        )
    note = (
        "Published gains are differences of Table 3, published parameters those of the networks that Tables 5 to 7 "
        "round. "
    )
    return [*blocks, Words(text=note + stands_for(found.scale))]


def full_and_partial(scale: Scale, task: str, part: str) -> Runs:
    names = {FINETUNE: FINETUNE, DITTO: DITTO, PFEDME: PFEDME, PARTIAL: key(FEDALT, part)}
    return {
        label: cell_of(scale, task, name) for label, name in names.items() if cell_of(scale, task, name) is not None
    }


def drawn(*figures: Figure | None) -> list[Block]:
    return [figure for figure in figures if figure is not None]


def about(found: Found) -> Words:
    return Words(text=f"Partial is FedAlt with the output layer, in Figure 8 with adapters. {stands_for(found.scale)}")


def show_4(found: Found) -> list[Block]:
    runs = full_and_partial(found.scale, device_task(found.scale), OUTPUT)
    runs = {label: runs[label] for label in (FINETUNE, PARTIAL)}
    table = counted(found, "Clients helped and hurt", runs)
    return [*drawn(scatter(found, "figure-4", "Change of each client", runs)), table, about(found)]


def show_5(found: Found) -> list[Block]:
    """Sizes are those of the clients that the runs trained on."""
    published = load("fedalt")["table-2"]
    rows: dict[str, list[Entry | None]] = {}
    panels: dict[str, dict[str, Series]] = {}
    for task in ALL_TASKS:
        cell = cell_of(found.scale, task, FINETUNE)
        sizes = sizes_of(found, cell)
        known = published.get(task, {})
        if cell is None and not known:
            continue
        measured = [None] * 3 if sizes is None else [len(sizes), float(sizes.mean()), float(sizes.max())]
        names = ("devices", "mean", "max")
        rows[shown(task, found.scale)] = [
            Entry(measured=one, published=known.get(name), seeds=0 if one is None else 1)
            for one, name in zip(measured, names, strict=True)
        ]
        if sizes is not None:
            numbers, edges = np.histogram(sizes, bins=10)
            panels[shown(task, found.scale)] = {
                "clients": Series(x=[f"{edge:.0f}" for edge in edges[:-1]], y=numbers.tolist())
            }
    grid = Grid(title="Training examples of clients", columns=["clients", "mean", "most"], rows=rows, digits=0)
    figure = Figure(
        name="figure-5", title="Clients by size", x="training examples, from", y="clients", panels=panels, kind="bars"
    )
    return [*([figure] if panels else []), grid, Words(text=stands_for(found.scale))]


def sizes_of(found: Found, cell: Cell | None) -> np.ndarray | None:
    outcomes = [] if cell is None else list(found.outcomes(cell).values())
    scores = outcomes[0].scores("finetuned", "train") if outcomes else None
    return None if scores is None else scores.examples


def l2_runs(scale: Scale) -> Runs:
    task = device_task(scale)
    runs = {f"L2 {one:g}": cell_of(scale, task, l2_key(one)) for one in L2[scale]}
    return {"no L2": cell_of(scale, task, key(FEDALT, ADAPTER)), **runs}


def dropout_runs(scale: Scale) -> Runs:
    task = device_task(scale)
    runs = {f"dropout {one:g}": cell_of(scale, task, dropout_key(one)) for one in DROPOUT[scale]}
    return {"no dropout": cell_of(scale, task, key(FEDALT, OUTPUT)), **runs}


def show_6(found: Found) -> list[Block]:
    runs = full_and_partial(found.scale, device_task(found.scale), OUTPUT)
    panels = {
        "train": ("train", runs),
        "test": ("test", runs),
        "adapters, L2 (test)": ("test", l2_runs(found.scale)),
        "output layer, dropout (test)": ("test", dropout_runs(found.scale)),
    }
    every = {**runs, **l2_runs(found.scale), **dropout_runs(found.scale)}
    figure = violins(found, "figure-6", "Changes over clients", panels)
    return [*drawn(figure), counted(found, "Clients helped and hurt", every), about(found)]


def show_7(found: Found) -> list[Block]:
    runs = full_and_partial(found.scale, device_task(found.scale), OUTPUT)
    table = counted(found, "Clients helped and hurt", runs)
    return [*drawn(scatter(found, "figure-7", "Change of each client", runs)), table, about(found)]


def show_8(found: Found) -> list[Block]:
    runs = full_and_partial(found.scale, second_task(found.scale), ADAPTER)
    table = counted(found, "Clients helped and hurt", runs)
    return [*drawn(scatter(found, "figure-8", "Change of each client", runs)), table, about(found)]


def show_9(found: Found) -> list[Block]:
    known = load("fedalt")["figure-9"]
    published = {
        "no dropout": {"hurt": known["hurt"], "hurt, %": 100 * known["hurt"] / known["devices"]},
        "dropout 0.3": {
            "hurt": known["hurt_with_dropout"],
            "hurt, %": 100 * known["hurt_with_dropout"] / known["devices"],
        },
    }
    l2, dropout = l2_runs(found.scale), dropout_runs(found.scale)
    return [
        *drawn(
            scatter(found, "figure-9-l2", "Adapters pulled to their start", l2, ("test",)),
            scatter(found, "figure-9-dropout", "Output layer with dropout", dropout, ("test",)),
        ),
        counted(found, "Adapters pulled to their start", l2),
        counted(found, "Output layer with dropout", dropout, published),
        Words(text=stands_for(found.scale)),
    ]


def show_10(found: Found) -> list[Block]:
    """Clients sorted by their mean change, with the least and the most over seeds."""
    panels: dict[str, dict[str, Series]] = {}
    rows: dict[str, list[Entry | None]] = {}
    for label, cell in full_and_partial(found.scale, device_task(found.scale), OUTPUT).items():
        pairing = change(found, cell)
        rows[label] = [None, None]
        if pairing is None:
            continue
        moved = 100 * (pairing.own - pairing.reference)
        order = np.argsort(moved.mean(axis=0), kind="stable")
        rank = [float(place) for place in range(len(order))]
        lines = {"mean": moved.mean(axis=0), "least": moved.min(axis=0), "most": moved.max(axis=0)}
        kept = lines if len(pairing.seeds) > 1 else {"mean": lines["mean"]}
        panels[label] = {name: Series(x=rank, y=values[order].tolist()) for name, values in kept.items()}
        deltas, seeds = pairing.deltas(), len(pairing.seeds)
        changing = Entry(measured=deltas.sign_changes, seeds=seeds) if seeds > 1 else None
        rows[label] = [Entry(measured=deltas.hurt, seeds=seeds), changing]
    columns = ["hurt", "helped or hurt by seed"]
    grid = Grid(title="Clients that personalisation hurts", columns=columns, rows=rows, digits=0)
    title = "Change of each client, sorted"
    figure = Figure(name="figure-10", title=title, x="rank", y="change in accuracy, points", panels=panels)
    note = "How clients change with the seed needs several: with one, the lines of least and most are left out. "
    return [*([figure] if panels else []), grid, Words(text=note + stands_for(found.scale))]
