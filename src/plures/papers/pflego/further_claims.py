"""What the PFLEGO papers read off their other tables and figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from plures.papers.blocks import Verdict
from plures.papers.cells import Cell
from plures.papers.pflego.figures import RHOS, TAUS, TRAIN_LOSS, pair_cells, rates_cells, steps_cells
from plures.papers.pflego.tables import ALPHABETS, alphabet_cells
from plures.papers.reading import all_of, because, better, entry, first_in_rounds, paired
from plures.papers.recipe import Claim, Found

HEADS = ("FedRep", "FedPer", "FedRecon", "PFLEGO")
"""Whose heads are the clients' own."""
GAP = 10.0
"""Points between these and methods with one head for all; the papers have about 20."""
LEARNT = 50.0
"""Percent that the best method has, if anything was learnt."""
SAME = 1.001
"""Losses nearer than that are the same."""


def judge_alphabets(found: Found) -> Verdict | None:
    """PFLEGO first and FedRecon second on all clients; heads of one's own far above one for all, after training."""
    cells = {cell.row: cell for cell in alphabet_cells(found.scale)}
    measured = {row: entry(found, cell, ALPHABETS).measured for row, cell in cells.items()}
    values = {row: value for row, value in measured.items() if isinstance(value, float)}
    if len(values) < len(cells):
        return None
    words = ", ".join(f"{row} {value:.1f}" for row, value in sorted(values.items(), key=lambda one: -one[1]))
    if max(values.values()) < LEARNT:
        return Verdict(verdict="undecided", figure=words, why="Few rounds and steps: no method has learnt much yet.")
    third = max((row for row in HEADS if row not in ("PFLEGO", "FedRecon")), key=lambda row: values[row])
    parts = {
        f"{own} above {other}": better(paired(found, cells[own], cells[other]), own, other)
        for own, other in (("PFLEGO", "FedRecon"), ("FedRecon", third))
    }
    shared = max(values["FedAvg"], values["FedProx"])
    for row in HEADS:
        gap = f"{values[row] - shared:+.1f} points"
        parts[f"{row} far above FedAvg and FedProx"] = Verdict(
            verdict="holds" if values[row] > shared + GAP else "fails", figure=gap
        )
    verdict = all_of(parts)
    return None if verdict is None else replace(verdict, figure=f"right after training {words}; {verdict.figure}")


def mean_loss(found: Found, cell: Cell) -> float | None:
    """Of the cohort after its training, over all evaluated rounds of the first seed."""
    outcomes = found.outcomes(cell)
    losses = outcomes[0].curve(TRAIN_LOSS)[1] if outcomes else []
    return sum(losses) / len(losses) if losses else None


def judge_steps(found: Found) -> Verdict | None:
    """By the test accuracy of all clients, as published of alphabets; clients are paired."""
    cells = {(cell.row, cell.column): cell for cell in steps_cells(found.scale)}
    pairs = {f"tau {tau}": [cells[row, f"tau {tau}"] for row in ("PFLEGO", "FedRecon")] for tau in TAUS}
    verdict = all_of({name: better(paired(found, *pair), "PFLEGO", "FedRecon") for name, pair in pairs.items()})
    return verdict if verdict is None or verdict.verdict == "holds" else replace(verdict, why=WHY_STEPS)


WHY_STEPS = (
    "What FedRecon sends after tau steps is what PFLEGO sends after tau + 1 (tested bit for bit): at the same tau it "
    "has taken one head step more, and the two hardly differ."
)


def judge_pair(found: Found) -> Verdict | None:
    """By the cohort's training loss over rounds."""
    cells = {cell.row: cell for cell in pair_cells(found.scale)}
    verdict = first_in_rounds(found, {row: (cells[row], TRAIN_LOSS) for row in ("PFLEGO", "FedRecon")})
    return because(verdict, WHY_STEPS)


def judge_rates(found: Found) -> Verdict | None:
    parts: dict[str, Verdict | None] = {}
    for rho in RHOS:
        cells = [cell for cell in rates_cells(found.scale) if cell.column == f"rho {rho}"]
        losses = [mean_loss(found, cell) for cell in cells]
        known = [loss for loss in losses if loss is not None]
        parts[f"rho {rho}"] = None
        if len(known) == len(losses):
            falls = all(later < SAME * earlier for earlier, later in pairwise(known)) and known[-1] < known[0]
            words = ", ".join(f"{cell.row} {loss:.4f}" for cell, loss in zip(cells, known, strict=True))
            parts[f"rho {rho}"] = Verdict(verdict="holds" if falls else "fails", figure=words)
    return all_of(parts)


FURTHER_CLAIMS = (
    Claim(
        name="T2",
        item="table-2",
        text="On Omniglot PFLEGO is best and FedRecon second; methods with heads of their own are far above FedAvg "
        "and FedProx.",
        judge=judge_alphabets,
    ),
    Claim(
        name="F4",
        item="figure-4",
        text="With any number of steps PFLEGO has a higher test accuracy than FedRecon.",
        judge=judge_steps,
    ),
    Claim(
        name="F12, 2022",
        item="figure-12-2022",
        text="On Omniglot PFLEGO has a lower training loss than FedRecon in most rounds and at the end.",
        judge=judge_pair,
    ),
    Claim(
        name="F4, 2022",
        item="figure-4-2022",
        text="With any rate of the server, a larger rate of the clients makes PFLEGO faster.",
        judge=judge_rates,
    ),
)
