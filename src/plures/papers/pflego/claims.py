"""The claims of the PFLEGO papers, and the directions that are sure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

from plures.papers.blocks import Verdict
from plures.papers.cells import Cell
from plures.papers.pflego.counts import bias, difference, passes_of
from plures.papers.pflego.figures import SHARES, TRAIN_LOSS, participation_cells
from plures.papers.pflego.tables import COHORT, GLOBAL_FEDAVG, METHODS, everybody, image_cell
from plures.papers.reading import all_of, because, better, entry, first_in_rounds, paired
from plures.papers.recipe import Claim, Direction, Found

FLAT_SOURCES = ("mnist", "fashion-mnist")
CLOSE = 1e-5
"""Of float32 after 20 rounds."""
TIE = 0.05
"""Points behind the best that are as good: on Fashion-MNIST the papers have 96.34 beside 96.35 and call it best."""
CHANCE = 0.5
"""Points behind the best that decide nothing: the published intervals are 0.2 to 0.6 wide."""
FASTER = 0.9
"""Of a loss: what is not lower than that is as fast."""


def judge_best(found: Found) -> Verdict | None:
    """PFLEGO above FedPer where classes are few, by the paired difference of all clients' models (E2)."""
    parts = {
        f"{source} {degree}": better(
            paired(
                found,
                image_cell(source, degree, "PFLEGO", found.scale),
                image_cell(source, degree, "FedPer", found.scale),
            ),
            "PFLEGO",
            "FedPer",
        )
        for source in FLAT_SOURCES
        for degree in ("high", "medium")
    }
    return all_of(parts)


def judge_cohort(found: Found) -> Verdict | None:
    """The same by the papers' own protocol: the cohort after its training, mean of the last ten rounds."""
    parts = {}
    for source in FLAT_SOURCES:
        for degree in ("high", "medium"):
            cells = {row: image_cell(source, degree, row, found.scale) for row in METHODS}
            parts[f"{source} {degree}"] = highest(found, cells, "PFLEGO")
    return all_of(parts)


def judge_global_labels(found: Found) -> Verdict | None:
    """With outputs that mean the same everywhere FedAvg is another method: after local training, and as it is."""
    parts: dict[str, Verdict | None] = {}
    for source in FLAT_SOURCES:
        for degree in ("high", "medium"):
            cells = {row: image_cell(source, degree, row, found.scale) for row in ("PFLEGO", GLOBAL_FEDAVG)}
            parts[f"{source} {degree}, cohort after training"] = highest(found, cells, "PFLEGO")
            pairing = paired(found, *cells.values(), against="global")
            parts[f"{source} {degree}, all clients as they are"] = better(pairing, "PFLEGO", GLOBAL_FEDAVG)
    why = (
        "Likely, not tested apart: where clients have half of the classes, a shared head of all ten learns from "
        "everybody, which a head of one's own cannot."
    )
    return because(all_of(parts), why)


def judge_none(found: Found) -> Verdict | None:
    parts = {}
    for source in FLAT_SOURCES:
        cells = {row: image_cell(source, "none", row, found.scale) for row in METHODS}
        parts[source] = highest(found, cells, "FedAvg")
    return all_of(parts)


def highest(found: Found, cells: dict[str, Cell], wanted: str) -> Verdict | None:
    """Whether a row has the highest mean, or as good as that; a little below it, chance may have decided."""
    values = {row: entry(found, cell, COHORT).measured for row, cell in cells.items()}
    known = {row: value for row, value in values.items() if isinstance(value, float)}
    if len(known) < len(cells):
        return None
    words = ", ".join(f"{row} {value:.2f}" for row, value in known.items())
    behind = max(known.values()) - known[wanted]
    return Verdict(verdict="holds" if behind <= TIE else "undecided" if behind <= CHANCE else "fails", figure=words)


def judge_loss(found: Found) -> Verdict | None:
    """Equation (1), the loss of all clients with what they have, at the same round."""
    return lowest_loss(found, lambda row: f"{'global' if row == 'FedAvg' else 'personal'}/train/loss")


def judge_cohort_loss(found: Found) -> Verdict | None:
    """What the authors' code measures: the cohort's own examples, right after its training on them."""
    verdict = lowest_loss(found, lambda row: TRAIN_LOSS)
    if verdict is not None and verdict.verdict == "holds":
        return replace(verdict, why=RULE_SEEN)
    why = "FedPer and FedAvg have just moved all layers for 50 steps on these very examples; PFLEGO only the head."
    return because(verdict, why)


RULE_SEEN = (
    "It depends on the rule, which was chosen after curves of two cases had been seen: by the mean over all rounds, "
    "which the first ones dominate, FedPer is lower than PFLEGO in all four cases of the first seed."
)


def lowest_loss(found: Found, metric_of: Callable[[str], str]) -> Verdict | None:
    return all_of(
        {
            f"{source} {degree}": first_in_rounds(
                found, {row: (image_cell(source, degree, row, found.scale), metric_of(row)) for row in METHODS}
            )
            for source in FLAT_SOURCES
            for degree in ("high", "medium")
        }
    )


def judge_passes(found: Found) -> Verdict | None:
    counts = {row: [passes_of(row, tau) for tau in (5, 50)] for row in METHODS}
    words = "; ".join(f"{row}: {low} passes at tau 5, {high} at 50" for row, (low, high) in counts.items())
    return Verdict(verdict="holds" if counts["PFLEGO"] == [2, 2] else "fails", figure=words)


def judge_exact(found: Found) -> Verdict | None:
    """The numbers themselves depend on the machine's float32; the item shows them."""
    holds = difference(5) < CLOSE and bias() < CLOSE
    words = (
        f"{'below' if holds else 'above'} {CLOSE:g}, float32: from gradient descent on the joint loss after 20 rounds, "
        "and the mean step over all cohorts of two from the whole step"
    )
    why = "Only with SGD at the server: all published results are with Adam, which is no SGD step."
    return Verdict(verdict="holds" if holds else "fails", figure=words, why=why)


def judge_participation(found: Found) -> Verdict | None:
    """The cohort's training loss at the end with everybody against that with 20 %."""
    cells = {(cell.row, cell.column): cell for cell in participation_cells(found.scale)}
    few, many = f"{SHARES[0]} %", f"{SHARES[-1]} %"
    parts: dict[str, Verdict | None] = {}
    for row in METHODS:
        ratio = loss_ratio(found, cells[row, many], cells[row, few])
        name = "PFLEGO is faster" if row == "PFLEGO" else f"{row} is not"
        parts[name] = None
        if ratio is not None:
            holds = (ratio < FASTER) == (row == "PFLEGO")
            words = f"loss with everybody {ratio:.2f} times that with {few}"
            parts[name] = Verdict(verdict="holds" if holds else "fails", figure=words)
    return all_of(parts)


def loss_ratio(found: Found, own: Cell, reference: Cell) -> float | None:
    """Of the mean over the last rounds, and over seeds."""
    sides = [[one.tail(TRAIN_LOSS) for one in found.outcomes(cell).values()] for cell in (own, reference)]
    return fmean(sides[0]) / fmean(sides[1]) if all(sides) else None


CLAIMS = (
    Claim(
        name="H1",
        item="table-1",
        text="PFLEGO is best at high and medium personalisation (cohort after training, as in the authors' code).",
        judge=judge_cohort,
    ),
    Claim(
        name="H1b",
        item="table-1",
        text="PFLEGO is above FedPer at high and medium personalisation on all clients (E2).",
        judge=judge_best,
    ),
    Claim(
        name="H1, global labels",
        item="table-1",
        text="PFLEGO is above FedAvg whose outputs mean the same everywhere (a control; the papers do not claim it).",
        judge=judge_global_labels,
    ),
    Claim(name="H1c", item="table-1", text="FedAvg is best without personalisation.", judge=judge_none),
    Claim(
        name="H2",
        item="figure-2",
        text="PFLEGO has the lowest training loss in most rounds and at the end (equation 1: all clients).",
        judge=judge_loss,
    ),
    Claim(
        name="H2, cohort",
        item="figure-2",
        text="PFLEGO has the lowest training loss in most rounds and at the end (the cohort after its training, as in "
        "the code).",
        judge=judge_cohort_loss,
    ),
    Claim(
        name="H3",
        item="counts",
        text="A round costs a client two network passes, whatever tau.",
        judge=judge_passes,
    ),
    Claim(
        name="H4",
        item="exactness",
        text="A round is an exact, unbiased step of SGD on the joint loss.",
        judge=judge_exact,
    ),
    Claim(
        name="H5",
        item="figure-6",
        text="More clients in a round make PFLEGO faster, and not FedPer or FedAvg.",
        judge=judge_participation,
    ),
)


def mnist_high(row: str) -> Cell:
    return image_cell("mnist", "high", row, "micro")


def above_fedper(found: Found) -> tuple[bool, str]:
    verdict = better(paired(found, mnist_high("PFLEGO"), mnist_high("FedPer")), "PFLEGO", "FedPer")
    return (verdict is not None and verdict.verdict == "holds", "" if verdict is None else verdict.figure)


def fedavg_best(found: Found) -> tuple[bool, str]:
    cells = {row: image_cell("mnist", "none", row, "micro") for row in METHODS}
    verdict = highest(found, cells, "FedAvg")
    return (verdict is not None and verdict.verdict == "holds", "" if verdict is None else verdict.figure)


def local_labels_need_training(found: Found) -> tuple[bool, str]:
    """FedAvg with numbers of classes that mean something else on each client: good only right after training."""
    cell = mnist_high("FedAvg")
    after, before = (entry(found, cell, read).measured for read in (COHORT, everybody))
    if not isinstance(after, float) or not isinstance(before, float):
        return False, ""
    return after > before + 10, f"cohort after training {after:.1f}, the shared model itself {before:.1f}"


DIRECTIONS = (
    Direction(
        name="pflego-above-fedper",
        text="MNIST, two classes each: PFLEGO's personal models are better than FedPer's",
        cells=(mnist_high("PFLEGO"), mnist_high("FedPer")),
        holds=above_fedper,
    ),
    Direction(
        name="fedavg-best-at-none",
        text="MNIST, all classes everywhere: FedAvg is best",
        cells=tuple(image_cell("mnist", "none", row, "micro") for row in METHODS),
        holds=fedavg_best,
    ),
    Direction(
        name="local-labels-need-training",
        text="MNIST, two classes each, local labels: FedAvg's shared model is of no use before local training",
        cells=(mnist_high("FedAvg"),),
        holds=local_labels_need_training,
    ),
)
