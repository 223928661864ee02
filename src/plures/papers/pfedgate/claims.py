"""The headlines of the pFedGate paper, judged under one protocol for all methods."""

from __future__ import annotations

import math
from dataclasses import replace

from plures.papers.blocks import Verdict
from plures.papers.cells import Cell
from plures.papers.pfedgate import few_tables as few
from plures.papers.pfedgate import settings as s
from plures.papers.pfedgate import tables as t
from plures.papers.pfedgate.columns import Column
from plures.papers.pfedgate.numbers import (
    AFTER_ROUND,
    AFTER_TRAINING,
    Protocol,
    decile_gain,
    metric_of,
    paired_rows,
)
from plures.papers.reading import all_of, because, better, entry, last
from plures.papers.recipe import Claim, Found

DECILE_NOISE = 2.0
"""Points of a bottom decile, which is one client's accuracy, that say nothing."""
SPEED_NOISE = 0.05
"""Of a ratio of rounds."""
GAP_NOISE = 2.0
"""Points of the gap of one newcomer, against that of another method on the same one; of n of them, by the root of n."""
LEAST_NEWCOMERS = 4
"""With fewer, the gap is whatever these few clients' data are like."""
LEARNT = 30.0
"""Percent, of ten classes or more."""
LITTLE_DROP = 1.0
LITTLE_COST = 2.5
"""Points; the paper's own largest is 2.48, on CIFAR-100."""
HALF = s.gated(0.5)


def sure(value: float, noise: float, words: str) -> Verdict:
    """A difference without an interval: decided where it is more than noise may be."""
    verdict = "holds" if value > noise else "fails" if value < -noise else "undecided"
    return Verdict(verdict=verdict, figure=words)  # type: ignore[arg-type]


# H1


def judge_best(found: Found) -> Verdict | None:
    """s = 0.5 and 0.3 against FedAvg-FT and against the strongest of the others, mean and bottom decile."""
    parts: dict[str, Verdict | None] = {}
    for column in t.main_columns(found.scale):
        densities = [density for density in (0.5, 0.3) if found.outcomes(s.pfedgate(column, density))]
        others = [row for row in s.BASELINES if found.outcomes(s.main_cell(column, row))]
        if len(densities) < 2 or len(others) < len(s.BASELINES):
            parts[column.title] = None
            continue
        for density in densities:
            for protocol in (AFTER_ROUND, AFTER_TRAINING):
                parts |= against(found, column, density, protocol)
    return because(all_of(parts), WHY_BEST)


def against(found: Found, column: Column, density: float, protocol: Protocol) -> dict[str, Verdict | None]:
    """By the mean against whoever has the best mean, by the decile against whoever has the best decile."""
    own = (s.gated(density), s.pfedgate(column, density))
    where = f"{column.title}, {own[0]}, {protocol}"
    parts: dict[str, Verdict | None] = {}
    for row in rivals(found, column, protocol, "weighted"):
        other = (row, s.main_cell(column, row))
        parts[f"{where}, {row}"] = better(paired_rows(found, own, other, protocol), own[0], row)
    for row in rivals(found, column, protocol, "bottom_decile"):
        gain = decile_gain(found, own, (row, s.main_cell(column, row)), protocol)
        if gain is not None:
            parts[f"{where}, {row}, bottom decile"] = sure(gain, DECILE_NOISE, f"{gain:+.2f} points")
    return parts


def rivals(found: Found, column: Column, protocol: Protocol, summed: str) -> list[str]:
    """The best of the others; after local training also FedAvg-FT, which has had that epoch too."""
    tuned = [s.TUNING] if protocol == AFTER_TRAINING else []
    scored = {}
    for row in s.BASELINES:
        value = entry(found, s.main_cell(column, row), last(metric_of(row, protocol), summed)).measured
        if row != s.TUNING and isinstance(value, float):
            scored[row] = value
    return [*tuned, *([max(scored, key=lambda row: scored[row])] if scored else [])]


WHY_BEST = (
    "The paper evaluates pFedGate right after local training, FedAvg and FedEM after averaging; here all are "
    "evaluated in the same two ways. Likely, not tested apart: gates near 0.5 halve what each layer passes on, so that "
    "the network learns more slowly at first, and needs more rounds than there are here."
)


# H2


def judge_parts(found: Found) -> Verdict | None:
    """Without sigmoid and client by client it is worse than sample by sample; without norms it is slower."""
    parts: dict[str, Verdict | None] = {}
    for column in t.ablation_columns(found.scale):
        by_sample, whole = t.ablation_cell(column, t.BY_SAMPLE), t.ablation_cell(column, t.WHOLE)
        for row in ("without sigmoid", "client-wise"):
            cell = t.ablation_cell(column, row)
            pairing = paired_rows(found, (by_sample.row, by_sample), (row, cell))
            parts[f"{column.title}, {row}"] = better(pairing, by_sample.row, row)
        for row in ("without pre-norm", "without post-norm"):
            parts[f"{column.title}, speed {row}"] = slower(found, t.ablation_cell(column, row), whole)
    return because(all_of(parts), WHY_PARTS)


def slower(found: Found, own: Cell, whole: Cell) -> Verdict | None:
    ratio = t.relative(found, own, whole, None).measured
    if not isinstance(ratio, float):
        return None
    return sure(ratio - 1, SPEED_NOISE, f"{ratio:.2f} times the rounds")


WHY_PARTS = (
    "Likely, not tested apart: a sigmoid gives gates near 0.5 at the start, which shrink what each layer passes on; "
    "gates without one are as large as the norm makes them, which suits short runs. Rounds to 0.8 of a run's own "
    "last accuracy depend on how far it comes: a gate that learns less gets there sooner."
)


# H3


def judge_newcomers(found: Found) -> Verdict | None:
    """The gap of s = 0.5 is smaller than those of FedAvg and FedEM."""
    parts: dict[str, Verdict | None] = {}
    for column in few.few_columns(found.scale):
        noise = GAP_NOISE / math.sqrt(num_newcomers(column))
        gaps = {row: newcomer_gap(found, column, row) for row in (HALF, s.FEDAVG, s.FEDEM)}
        own = gaps[HALF]
        for row in (s.FEDAVG, s.FEDEM):
            other = gaps[row]
            words = f"{column.title}, {row}"
            parts[words] = None
            if own is not None and other is not None:
                verdict = sure(other - own, noise, f"gap {own:.2f}, {row} {other:.2f}")
                few_come = num_newcomers(column) < LEAST_NEWCOMERS
                parts[words] = replace(verdict, verdict="undecided") if few_come else verdict
    return because(all_of(parts), WHY_NEWCOMERS)


def num_newcomers(column: Column) -> int:
    clients: int = column.data.get("clients") or column.data["sample_clients"]
    return round(s.NEWCOMERS * clients)


def newcomer_gap(found: Found, column: Column, row: str) -> float | None:
    theirs = f"newcomers/{few.newcomer_model(row)}/test/accuracy"
    value = entry(found, s.with_newcomers(column, row), few.gap(metric_of(row), theirs)).measured
    return value if isinstance(value, float) else None


WHY_NEWCOMERS = (
    "Newcomers are a fifth of the clients, so that the gap has the difficulty of these few clients' data in it; the "
    "paper's gaps of about a point are smaller than that."
)


# H4


def judge_sampling(found: Found) -> Verdict | None:
    """With a fifth of the clients in a round, pFedGate is not more than a point worse."""
    parts: dict[str, Verdict | None] = {}
    for column in few.few_columns(found.scale):
        for row in t.GATED:
            pairing = paired_rows(found, (row, s.sampled(column, row)), (row, s.main_cell(column, row)))
            verdict = better(pairing, "a fifth", "all", margin=LITTLE_DROP)
            if verdict is not None and found.scale == "micro" and never_learnt(found, s.sampled(column, row), row):
                verdict = replace(verdict, verdict="undecided", figure=f"{verdict.figure}, never learnt")
            parts[f"{column.title}, {row}"] = verdict
    return because(all_of(parts), WHY_SAMPLING)


def never_learnt(found: Found, cell: Cell, row: str) -> bool:
    """Whether a run is still where it began."""
    reached = entry(found, cell, last(metric_of(row))).measured
    return isinstance(reached, float) and reached < LEARNT


WHY_SAMPLING = (
    "At the scale micro, a run that is still near chance at its end says nothing of sampling: its rates, chosen "
    "with all clients in a round, do not lead it off the plateau of the first rounds with so few of them. Else, "
    "likely and not tested apart: a client's gate learns only when the client is called, and the shared network "
    "moves on between its visits."
)


# H5


def judge_density(found: Found) -> Verdict | None:
    """s = 0.3 is not much worse than s = 1."""
    parts: dict[str, Verdict | None] = {}
    for column in t.main_columns(found.scale):
        cells = [(s.gated(density), s.pfedgate(column, density)) for density in (0.3, 1.0)]
        pairing = paired_rows(found, cells[0], cells[1])
        parts[column.title] = better(pairing, "s = 0.3", "s = 1", margin=LITTLE_COST)
    return because(all_of(parts), WHY_DENSITY)


WHY_DENSITY = (
    "At s = 0.3 the large pieces never fit and the small ones always do, so that all clients keep the same blocks "
    "and three quarters of the network are never trained."
)

CLAIMS = (
    Claim(
        name="H1",
        item="table-1",
        text="pFedGate has a better mean and bottom decile than all other methods, at densities of 0.43 and 0.25.",
        judge=judge_best,
    ),
    Claim(
        name="H2",
        item="table-2",
        text="The gate's sigmoid and gates for each sample matter for accuracy, its norms for speed.",
        judge=judge_parts,
    ),
    Claim(
        name="H3",
        item="table-5",
        text="Clients that come after training are less far behind than with FedAvg and FedEM.",
        judge=judge_newcomers,
    ),
    Claim(
        name="H4",
        item="table-6",
        text=f"With a fifth of the clients in a round, pFedGate loses little (here: at most {LITTLE_DROP:g} point).",
        judge=judge_sampling,
    ),
    Claim(
        name="H5",
        item="table-1",
        text=f"From s = 1 to s = 0.3 accuracy falls little (here: at most {LITTLE_COST:g} points).",
        judge=judge_density,
    ),
)
