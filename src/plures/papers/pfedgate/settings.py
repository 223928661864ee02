"""The runs of the pFedGate paper: every method on a column, so that tables and figures with the same run share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plures.papers.cells import Cell
from plures.papers.pfedgate.columns import CONVOLUTIONS, Column

OWN = "personal"
SHARED = "global"
TUNED = "finetuned"
EXTRAS = "plures.papers.pfedgate.extras"
POST_LOCAL = (f"{EXTRAS}:post_local",)
GATES = (*POST_LOCAL, f"{EXTRAS}:gate_history")
TREE = (*GATES, f"{EXTRAS}:gate_tree")

FEDAVG, TUNING, FEDEM, MASKED = "FedAvg", "FedAvg-FT", "FedEM", "FedMask, s = 0.5"
LOCAL, PFEDME, LG, DITTO, FEDREP = "Local", "pFedMe", "LG-FedAvg", "Ditto", "FedRep"
NARROW = "HeteroFL, s' = 0.55"
LARGEST_NORM = 10.0
"""Of gradients: the authors' code cuts them there for all methods."""
NEWCOMERS = 0.2


def gated(density: float) -> str:
    return f"pFedGate, s = {density:g}"


MAIN = {name: gated(density) for name, density in (("whole", 1.0), ("half", 0.5), ("third", 0.3))}
BASELINES = (LOCAL, FEDAVG, TUNING, PFEDME, LG, DITTO, FEDEM, FEDREP, MASKED, NARROW)
MODELS = {FEDAVG: SHARED, TUNING: TUNED}
"""What a method is judged by, unless it is a client's own model."""


def model_of(row: str) -> str:
    return MODELS.get(row, OWN)


def momentum(column: Column, lr: float) -> dict[str, Any]:
    """SGD as in the authors' code; rates fall to a tenth after three quarters of the rounds, where there are many."""
    falling = {"schedule": "exponential", "start": lr, "factor": 0.1, "every": 3 * column.rounds // 4}
    rate: float | dict[str, Any] = falling if column.falling else lr
    return {"optimizer": "sgd", "lr": rate, "momentum": 0.9, "weight_decay": 5e-4}


def epoch(column: Column, epochs: int = 1) -> dict[str, Any]:
    return {"epochs": epochs, "batch": column.batch}


def make(
    column: Column,
    row: str,
    method: str,
    options: Mapping[str, Any],
    *,
    models: tuple[str, ...] = (OWN,),
    extras: tuple[str, ...] = POST_LOCAL,
    **more: Any,
) -> Cell:
    """Everybody takes part in every round, so that models after local training are those of all clients."""
    table = {
        "method": method,
        "rounds": column.rounds,
        "data": dict(column.data),
        "model": dict(column.model),
        "method_options": dict(options),
        "evaluation": {
            "every": column.every,
            "models": list(models),
            "splits": ["validation", "test"],
            "post_local": True,
        },
    }
    return Cell(row=row, column=column.title, table={**table, **more}, extras=extras)


def plain(column: Column, lr: float | None = None) -> dict[str, Any]:
    rate = column.lr if lr is None else lr
    return {"lr": momentum(column, rate), "budget": epoch(column), "clip_norm": LARGEST_NORM}


def fedavg(column: Column, row: str = FEDAVG) -> Cell:
    """FedAvg, and FedAvg-FT with one epoch on a copy: two rows of one run."""
    options = {**plain(column), "adapt": epoch(column)}
    return make(column, row, "fedavg", options, models=(SHARED, TUNED))


def fedem(column: Column) -> Cell:
    return make(column, FEDEM, "fedem", {**plain(column), "components": 3})


def fedmask(column: Column, density: float = 0.5) -> Cell:
    """Masks of the last layers, after FedAvg for a third of the rounds: masks of random weights would not do."""
    warm = column.rounds // 3
    options = {
        "masked": column.masked,
        "density": density,
        "lr": 1.0,
        "budget": epoch(column),
        "first_budget": epoch(column),
        "clip_norm": LARGEST_NORM,
    }
    before = {"method": "fedavg", "rounds": warm, **plain(column)}
    cell = make(column, f"FedMask, s = {density:g}", "fedmask", options, pipeline={"pretrain": before})
    return Cell(
        row=cell.row, column=cell.column, table={**cell.table, "rounds": column.rounds - warm}, extras=cell.extras
    )


def heterofl(column: Column) -> Cell:
    """A tenth of the clients has the whole network, the others 0.7 of its channels, which is half of the weights."""
    options = {"lr": momentum(column, column.lr), "budget": epoch(column)}
    widths = {"width": {"tiers": [[0.1, 1.0], [0.9, 0.7]]}}
    return make(column, NARROW, "heterofl", options, capacity=widths)


def baseline(column: Column, row: str) -> Cell:
    """A method of Table 1 other than pFedGate."""
    if row in (FEDAVG, TUNING):
        return fedavg(column, row)
    if row == FEDEM:
        return fedem(column)
    if row == MASKED:
        return fedmask(column)
    if row == NARROW:
        return heterofl(column)
    if row == PFEDME:
        options = {"lam": 1.0, "inner_steps": 3, "inner_lr": 0.1, "lr": 1.0, "budget": epoch(column)}
        return make(column, row, "pfedme", options)
    named: dict[str, tuple[str, dict[str, Any]]] = {
        LOCAL: ("local", {}),
        LG: ("lg_fedavg", {"personal": CONVOLUTIONS}),
        DITTO: ("ditto", {"lam": 0.1, "personal_budget": epoch(column)}),
        FEDREP: ("fedrep", {"head_budget": epoch(column)}),
    }
    method, own = named[row]
    return make(column, row, method, {**plain(column, column.own_lr), **own})


def pfedgate(column: Column, density: float, row: str | None = None, **options: Any) -> Cell:
    """Gates, with options that differ from the paper's usual ones."""
    every = column.often if density == 0.5 else column.every
    options = gate_options(column, density) | options
    return make(replace(column, every=every), row or gated(density), "pfedgate", options, extras=GATES)


def gate_options(column: Column, density: float) -> dict[str, Any]:
    network, gate = column.rates(density)
    return {
        "density": density,
        "lr": momentum(column, network),
        "gate_lr": momentum(column, gate),
        "budget": epoch(column),
        "adapt": epoch(column, 5),
    }


def mixed_gates(column: Column) -> Cell:
    """Half of the clients with half of the network, half with a tenth."""
    options = gate_options(column, 0.5) | {"least": 0.1}
    tiers = {"density": {"tiers": [[0.5, 0.5], [0.5, 0.1]]}}
    return make(column, "mixed", "pfedgate", options, extras=GATES, capacity=tiers)


def main_cell(column: Column, row: str) -> Cell:
    """Any row of Table 1."""
    densities = {gated(density): density for density in (1.0, 0.5, 0.3)}
    return pfedgate(column, densities[row]) if row in densities else baseline(column, row)


def sampled(column: Column, row: str) -> Cell:
    """With a fifth of the clients in a round."""
    times = column.sampled_times
    cell = main_cell(replace(column, rounds=column.rounds * times), row)
    evaluation = {
        **cell.table["evaluation"],
        "every": column.every * times,
        "models": [model_of(row)],
        "post_local": False,
    }
    table = {**cell.table, "cohort": 0.2, "evaluation": evaluation}
    return Cell(row=row, column=column.title, table=table, extras=cell.extras[1:])


def with_newcomers(column: Column, row: str) -> Cell:
    """With a fifth of the clients held out until the end; only the last round is looked at."""
    cell = main_cell(column, row)
    models = [SHARED, TUNED] if row in (FEDAVG, TUNING) else [OWN, TUNED]
    evaluation = {**cell.table["evaluation"], "every": column.rounds, "models": models, "post_local": False}
    table = {**cell.table, "data": {**cell.table["data"], "newcomers": NEWCOMERS}, "evaluation": evaluation}
    return Cell(row=row, column=column.title, table=table, extras=cell.extras[1:])


def pathological(column: Column) -> Cell:
    """Ten clients with two shards of sorted data each, s = 0.3."""
    kept = {name: value for name, value in column.data.items() if name not in ("partition", "alpha")}
    cell = pfedgate(column, 0.3)
    data = {**kept, "clients": 10, "partition": "shards", "shards_per_client": 2}
    return Cell(row=gated(0.3), column=column.title, table={**cell.table, "data": data}, extras=TREE)
