"""The headlines of the pFedGate paper, judged under one protocol for all methods."""

from __future__ import annotations

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
from plures.papers.reading import all_of, better, entry, last
from plures.papers.recipe import Claim, Found

DECILE_NOISE = 2.0
"""Points of a bottom decile, which is one client's accuracy, that say nothing."""
GAP_NOISE = 1.0
"""Points of a gap of newcomers, who are few."""
LEAST_NEWCOMERS = 4
"""With fewer, the gap is whatever these few clients' data are like."""
LEARNT = 30.0
"""Percent, of ten classes or more."""
LITTLE_DROP = 1.0
LITTLE_COST = 1.5
HALF = s.gated(0.5)


def sure(value: float, noise: float, words: str) -> Verdict:
    """A difference without an interval: holds above 0, fails where it is worse than noise may be."""
    verdict = "holds" if value > 0 else "fails" if value < -noise else "undecided"
    return Verdict(verdict=verdict, figure=words)  # type: ignore[arg-type]


def with_why(verdict: Verdict | None, why: str) -> Verdict | None:
    if verdict is None or verdict.verdict == "holds":
        return verdict
    return Verdict(
        verdict=verdict.verdict, figure=verdict.figure, why=why, interval=verdict.interval, parts=verdict.parts
    )


# H1


def judge_best(found: Found) -> Verdict | None:
    """s = 0.5 against FedAvg-FT and against the strongest of the others, mean and bottom decile."""
    parts: dict[str, Verdict | None] = {}
    for column in t.main_columns(found.scale):
        if not found.outcomes(s.pfedgate(column, 0.5)):
            continue
        for protocol in (AFTER_ROUND, AFTER_TRAINING):
            for row in rivals(found, column, protocol):
                parts |= against(found, column, row, protocol)
    return with_why(all_of(parts), WHY_BEST) if parts else None


def rivals(found: Found, column: Column, protocol: Protocol) -> list[str]:
    """FedAvg-FT, which has had an epoch more, and the best of the others."""
    scored = {}
    for row in s.BASELINES:
        read = last(metric_of(row, protocol))
        value = entry(found, s.main_cell(column, row), read).measured
        if row != s.TUNING and isinstance(value, float):
            scored[row] = value
    tuned = [s.TUNING] if found.outcomes(s.main_cell(column, s.TUNING)) else []
    return list(dict.fromkeys([*tuned, *([max(scored, key=lambda row: scored[row])] if scored else [])]))


def against(found: Found, column: Column, row: str, protocol: Protocol) -> dict[str, Verdict | None]:
    own, other = (HALF, s.pfedgate(column, 0.5)), (row, s.main_cell(column, row))
    where = f"{column.title}, {protocol}, {row}"
    parts: dict[str, Verdict | None] = {where: better(paired_rows(found, own, other, protocol), HALF, row)}
    gain = decile_gain(found, own, other, protocol)
    if gain is not None:
        parts[f"{where}, bottom decile"] = sure(gain, DECILE_NOISE, f"{gain:+.2f} points")
    return parts


WHY_BEST = (
    "The paper evaluates pFedGate right after local training, FedAvg and FedEM after averaging; here all are "
    "evaluated in the same way. Likely, not tested apart: gates near 0.5 halve what each layer passes on, so that "
    "the network learns more slowly at first, and needs more rounds than there are here."
)


# H2


def judge_parts(found: Found) -> Verdict | None:
    """Without sigmoid and client by client it is worse; without norms it is slower."""
    parts: dict[str, Verdict | None] = {}
    for column in t.ablation_columns(found.scale):
        by_sample, whole = t.ablation_cell(column, t.BY_SAMPLE), t.ablation_cell(column, t.WHOLE)
        for row, reference in (("without sigmoid", by_sample), ("client-wise", whole)):
            cell = t.ablation_cell(column, row)
            pairing = paired_rows(found, (reference.row, reference), (row, cell))
            parts[f"{column.title}, {row}"] = better(pairing, reference.row, row)
        for row in ("without pre-norm", "without post-norm"):
            parts[f"{column.title}, speed {row}"] = slower(found, t.ablation_cell(column, row), whole)
    return with_why(all_of(parts), WHY_PARTS)


def slower(found: Found, own: Cell, whole: Cell) -> Verdict | None:
    ratio = t.relative(found, own, whole, None).measured
    if not isinstance(ratio, float):
        return None
    return sure(ratio - 1, 0.1, f"{ratio:.2f} times the rounds")


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
        gaps = {row: newcomer_gap(found, column, row) for row in (HALF, s.FEDAVG, s.FEDEM)}
        own = gaps[HALF]
        for row in (s.FEDAVG, s.FEDEM):
            other = gaps[row]
            words = f"{column.title}, {row}"
            parts[words] = None
            if own is not None and other is not None:
                verdict = sure(other - own, GAP_NOISE, f"gap {own:.2f}, {row} {other:.2f}")
                few_come = num_newcomers(column) < LEAST_NEWCOMERS
                parts[words] = replace(verdict, verdict="undecided") if few_come else verdict
    return with_why(all_of(parts), WHY_NEWCOMERS)


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
            if verdict is not None and never_learnt(found, s.sampled(column, row), row):
                verdict = replace(verdict, verdict="undecided", figure=f"{verdict.figure}, never learnt")
            parts[f"{column.title}, {row}"] = verdict
    return with_why(all_of(parts), WHY_SAMPLING)


def never_learnt(found: Found, cell: Cell, row: str) -> bool:
    """Whether a run is still where it began."""
    reached = entry(found, cell, last(metric_of(row))).measured
    return isinstance(reached, float) and reached < LEARNT


WHY_SAMPLING = (
    "A run that is still near chance at its end says nothing of sampling: its rates, chosen with all clients in a "
    "round, do not lead it off the plateau of the first rounds with so few of them. Else, likely and not tested apart: "
    "a client's gate learns only when the client is called, and the shared network moves on between its visits."
)


# H5


def judge_density(found: Found) -> Verdict | None:
    """s = 0.3 is not much worse than s = 1."""
    parts: dict[str, Verdict | None] = {}
    for column in t.main_columns(found.scale):
        cells = [(s.gated(density), s.pfedgate(column, density)) for density in (0.3, 1.0)]
        pairing = paired_rows(found, cells[0], cells[1])
        parts[column.title] = better(pairing, "s = 0.3", "s = 1", margin=LITTLE_COST)
    return with_why(all_of(parts), WHY_DENSITY)


WHY_DENSITY = (
    "At s = 0.3 the large pieces never fit and the small ones always do, so that all clients keep the same blocks "
    "and three quarters of the network are never trained."
)

CLAIMS = (
    Claim(
        name="H1",
        text="pFedGate has a better mean and bottom decile than all other methods, at densities of 0.43 and 0.25.",
        judge=judge_best,
        recipes=("table-1",),
    ),
    Claim(
        name="H2",
        text="The gate's sigmoid and gates for each sample matter for accuracy, its norms for speed.",
        judge=judge_parts,
        recipes=("table-2",),
    ),
    Claim(
        name="H3",
        text="Clients that come after training are less far behind than with FedAvg and FedEM.",
        judge=judge_newcomers,
        recipes=("table-5",),
    ),
    Claim(
        name="H4",
        text=f"With a fifth of the clients in a round, pFedGate loses little (here: at most {LITTLE_DROP:g} point).",
        judge=judge_sampling,
        recipes=("table-6",),
    ),
    Claim(
        name="H5",
        text=f"From s = 1 to s = 0.3 accuracy falls little (here: at most {LITTLE_COST:g} points).",
        judge=judge_density,
        recipes=("table-1", "figure-5"),
    ),
)
