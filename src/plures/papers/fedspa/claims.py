"""What the FedSpa paper claims, and whether it shows here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

from plures.papers.blocks import Verdict
from plures.papers.cells import Cell
from plures.papers.fedspa.common import final, gigabytes
from plures.papers.fedspa.runs import density_cells, regrowth_cells
from plures.papers.fedspa.settings import (
    DST,
    FEDAVG,
    IID,
    LOCAL,
    METHODS,
    RSM,
    TASKS,
    B,
    Task,
    ablated,
    cell,
    judged,
    sparse_cell,
)
from plures.papers.reading import all_of, because, better, paired
from plures.papers.recipe import Claim, Found
from plures.report.pairing import Pairing

NEAR = 1.0
"""Points below the best method that are near best."""
RSM_BELOW = 1.5
"""Points that RSM may be below FedAvg; the paper's largest gap is 1.1."""
ALIKE = 2.0
"""Points by which models that do the same may differ."""
HALF = 0.01
"""That a share may be off one half."""
LOW, HIGH = 0.2, 0.5
"""Sparsities whose difference tells how well sparse models do; all scales have them."""


def against(found: Found, task: Task, own: str, reference: str, column: str) -> Pairing | None:
    """Two methods of the main comparison, each by the model it is judged by."""
    sides = cell(task, own, column), cell(task, reference, column)
    return paired(found, *sides, model=judged(own), against=judged(reference))


def judge_best(found: Found) -> Verdict | None:
    """H1: for each task and each kind of skew, and the traffic."""
    parts: dict[str, Verdict | None] = {}
    for task in TASKS[found.scale].values():
        for column in task.columns:
            if column != IID:
                parts[f"{task.told}, {task.column(column)}"] = near_best(found, task, column)
        parts[f"{task.told}, traffic"] = half_traffic(found, task)
    found_any = any(part is not None for name, part in parts.items() if not name.endswith("traffic"))
    return explained(found, all_of(parts)) if found_any else None


def explained(found: Found, verdict: Verdict | None) -> Verdict | None:
    """With a cause, where it is for skewed clients that a claim fails, and averaging itself is what is weak."""
    task = ablated(found.scale)
    sides = [list(found.outcomes(cell(task, method, B)).values()) for method in (LOCAL, FEDAVG)]
    failing = [] if verdict is None else [name for name, part in verdict.parts.items() if part == "fails"]
    if not failing or not all(sides) or any(name.endswith(IID) for name in failing):
        return verdict
    alone, averaged = (fmean(map(final, side)) for side in sides)
    if alone <= averaged:
        return verdict
    why = (
        f"At {task.column(B)} clients alone have {alone:.1f} % where FedAvg has {averaged:.1f}; the paper has FedAvg "
        "level with them or ahead. After so few rounds whatever keeps clients' weights apart helps (likely, not tested "
        "apart)."
    )
    return because(verdict, why)


def near_best(found: Found, task: Task, column: str) -> Verdict | None:
    """Above FedAvg and RSM, and near or above all others."""
    verdicts: dict[str, Verdict] = {}
    for method in METHODS[1:]:
        margin = 0.0 if method in (FEDAVG, RSM) else NEAR
        verdict = better(against(found, task, DST, method, column), DST, method, margin=margin)
        if verdict is None:
            return None
        verdicts[method] = verdict
    kinds = {verdict.verdict for verdict in verdicts.values()}
    told = ", ".join(f"{method} {difference(verdict)}" for method, verdict in verdicts.items())
    result = "fails" if "fails" in kinds else "undecided" if "undecided" in kinds else "holds"
    return Verdict(verdict=result, figure=f"DST minus {told}")  # type: ignore[arg-type]


def difference(verdict: Verdict) -> str:
    """Number and interval of a verdict of `better`."""
    return verdict.figure.partition(": ")[2].partition(" points")[0]


def half_traffic(found: Found, task: Task) -> Verdict | None:
    sides = [found.outcomes(cell(task, method, B)) for method in (DST, FEDAVG)]
    seeds = [seed for seed in sides[0] if seed in sides[1]]
    if not seeds:
        return None
    share = gigabytes(sides[0][seeds[0]]) / gigabytes(sides[1][seeds[0]])
    return Verdict(verdict="holds" if abs(share - 0.5) < HALF else "fails", figure=f"{100 * share:.1f} % of FedAvg's")


def judge_static(found: Found) -> Verdict | None:
    """H2: RSM is FedAvg where clients are alike, and no match for DST where they differ."""
    parts: dict[str, Verdict | None] = {}
    for task in TASKS[found.scale].values():
        near = against(found, task, RSM, FEDAVG, IID)
        parts[f"{task.told}, IID"] = better(near, RSM, FEDAVG, margin=RSM_BELOW)
        parts[f"{task.told}, {task.column(B)}"] = better(against(found, task, DST, RSM, B), DST, RSM)
    return all_of(parts)


def judge_sparsity(found: Found) -> Verdict | None:
    """H3: what more sparsity brings is more where clients differ more."""
    task = ablated(found.scale)
    first, second = (sparsity_gain(found, task, column) for column in (IID, B))
    if first is None or second is None:
        return None
    (alike, alike_off), (skewed, skewed_off) = first, second
    gain, off = skewed - alike, math.hypot(alike_off, skewed_off)
    numbers = (
        f"from a sparsity of {LOW:g} to {HIGH:g}: {alike:+.2f} points IID, {skewed:+.2f} at {task.column(B)}, "
        f"difference {gain:+.2f} [{gain - off:+.2f}, {gain + off:+.2f}]"
    )
    interval = (gain - off, gain + off)
    if interval[0] > 0:
        return Verdict(verdict="holds", figure=numbers, interval=interval)
    return Verdict(verdict="fails" if interval[1] < 0 else "undecided", figure=numbers, interval=interval)


def sparsity_gain(found: Found, task: Task, column: str) -> tuple[float, float] | None:
    """In points, and half the width of its interval."""
    pairing = paired(found, sparse_cell(task, HIGH, column), sparse_cell(task, LOW, column))
    interval = None if pairing is None else pairing.interval()
    if pairing is None or interval is None:
        return None
    return 100 * pairing.difference(), 50 * (interval.high - interval.low)


def first_better(found: Found, cells: list[Cell]) -> Verdict | None:
    """Whether the first of two rows is the better one in every column."""
    task, places = ablated(found.scale), {(one.row, one.column): one for one in cells}
    own, reference = dict.fromkeys(one.row for one in cells)
    return all_of(
        {
            task.column(column): better(paired(found, places[own, column], places[reference, column]), own, reference)
            for column in task.columns
        }
    )


def judge_layers(found: Found) -> Verdict | None:
    """H4."""
    return explained(found, first_better(found, density_cells(found.scale)))


def judge_regrowth(found: Found) -> Verdict | None:
    """H5: slightly better, so that a gap within noise decides nothing."""
    return explained(found, first_better(found, regrowth_cells(found.scale)))


def judge_global(found: Found) -> Verdict | None:
    """H6: as good as the personal models where clients are alike, worse where they differ."""
    task = ablated(found.scale)
    parts: Mapping[str, Verdict | None] = {
        column: (alike if column == IID else better)(
            paired(found, *[cell(task, DST, column)] * 2, against="global"), "personal", "global"
        )
        for column in task.columns
    }
    return all_of({task.column(column): part for column, part in parts.items()})


def alike(pairing: Pairing | None, own: str, reference: str) -> Verdict | None:
    """Whether the interval of a difference stays within two points."""
    verdict = better(pairing, own, reference)
    if verdict is None or verdict.interval is None:
        return None
    low, high = verdict.interval
    if low > -ALIKE and high < ALIKE:
        return replace(verdict, verdict="holds")
    return replace(verdict, verdict="fails" if low > ALIKE or high < -ALIKE else "undecided")


CLAIMS = (
    Claim(
        name="H1",
        item="table-1",
        text="Where clients differ, DST is above FedAvg and RSM, at most a point below the best, at half the traffic",
        judge=judge_best,
    ),
    Claim(
        name="H2",
        item="table-1",
        text="RSM does as well as FedAvg where clients are alike, and worse than DST where they differ",
        judge=judge_static,
    ),
    Claim(
        name="H3",
        item="table-3",
        text="The more clients differ, the more sparsity pays",
        judge=judge_sparsity,
    ),
    Claim(
        name="H4",
        item="table-4",
        text="Layers that are sparse by ERK do better than layers that are all as sparse",
        judge=judge_layers,
    ),
    Claim(
        name="H5",
        item="figure-7",
        text="Regrowth by gradient is slightly better than at random",
        judge=judge_regrowth,
    ),
    Claim(
        name="H6",
        item="figure-8",
        text="The dense model of DST is as good as the personal ones where clients are alike, worse where they differ",
        judge=judge_global,
    ),
)
