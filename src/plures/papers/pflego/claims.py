"""The claims of the PFLEGO papers, and the directions that are sure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

from plures.papers.blocks import Verdict
from plures.papers.cells import Cell
from plures.papers.pflego.counts import difference, passes_of
from plures.papers.pflego.figures import SHARES, TRAIN_LOSS, participation_cells
from plures.papers.pflego.tables import COHORT, everybody, image_cell
from plures.papers.reading import all_of, better, entry, paired
from plures.papers.recipe import Claim, Direction, Found

FLAT_SOURCES = ("mnist", "fashion-mnist")
CLOSE = 1e-5
"""Of float32 after 20 rounds."""


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
            cells = {row: image_cell(source, degree, row, found.scale) for row in ("PFLEGO", "FedPer", "FedAvg")}
            parts[f"{source} {degree}"] = highest(found, cells, "PFLEGO")
    return all_of(parts)


def judge_none(found: Found) -> Verdict | None:
    parts = {}
    for source in FLAT_SOURCES:
        cells = {row: image_cell(source, "none", row, found.scale) for row in ("PFLEGO", "FedPer", "FedAvg")}
        parts[source] = highest(found, cells, "FedAvg")
    return all_of(parts)


def highest(found: Found, cells: dict[str, Cell], wanted: str) -> Verdict | None:
    """Whether a row has the highest mean; with a seed or two, nothing is said of chance."""
    values = {row: entry(found, cell, COHORT).measured for row, cell in cells.items()}
    known = {row: value for row, value in values.items() if isinstance(value, float)}
    if len(known) < len(cells):
        return None
    words = ", ".join(f"{row} {value:.2f}" for row, value in known.items())
    return Verdict(verdict="holds" if max(known, key=known.__getitem__) == wanted else "fails", figure=words)


def judge_loss(found: Found) -> Verdict | None:
    """Equation (1), the loss of all clients with what they have, at the same round."""
    return lowest_loss(found, lambda row: f"{'global' if row == 'FedAvg' else 'personal'}/train/loss")


def judge_cohort_loss(found: Found) -> Verdict | None:
    """What the authors' code measures: the cohort's own examples, right after its training on them."""
    verdict = lowest_loss(found, lambda row: TRAIN_LOSS)
    why = "FedPer and FedAvg have just moved all layers for 50 steps on these very examples; PFLEGO only the head."
    return verdict if verdict is None or verdict.verdict == "holds" else replace(verdict, why=why)


def lowest_loss(found: Found, metric_of: Callable[[str], str]) -> Verdict | None:
    """By the mean over all evaluated rounds and seeds, since every curve falls."""
    parts: dict[str, Verdict] = {}
    for source in FLAT_SOURCES:
        for degree in ("high", "medium"):
            losses = {
                row: [
                    fmean(outcome.curve(metric_of(row))[1])
                    for outcome in found.outcomes(image_cell(source, degree, row, found.scale)).values()
                    if outcome.curve(metric_of(row))[1]
                ]
                for row in ("PFLEGO", "FedPer", "FedAvg")
            }
            if all(losses.values()):
                means = {row: fmean(values) for row, values in losses.items()}
                words = ", ".join(f"{row} {value:.4f}" for row, value in means.items())
                first = min(means, key=means.__getitem__) == "PFLEGO"
                parts[f"{source} {degree}"] = Verdict(verdict="holds" if first else "fails", figure=words)
    return all_of(parts) if parts else None


def judge_passes(found: Found) -> Verdict | None:
    counts = {row: [passes_of(row, tau) for tau in (5, 50)] for row in ("PFLEGO", "FedPer", "FedAvg")}
    words = "; ".join(f"{row}: {low} passes at tau 5, {high} at 50" for row, (low, high) in counts.items())
    return Verdict(verdict="holds" if counts["PFLEGO"] == [2, 2] else "fails", figure=words)


def judge_exact(found: Found) -> Verdict | None:
    """The number itself depends on the machine's float32; the item shows it."""
    holds = difference(5) < CLOSE
    words = (
        f"{'below' if holds else 'above'} {CLOSE:g} from gradient descent on the joint loss after 20 rounds, float32"
    )
    why = "Only with SGD at the server: all published results are with Adam, which is no SGD step."
    return Verdict(verdict="holds" if holds else "fails", figure=words, why=why)


def judge_participation(found: Found) -> Verdict | None:
    """The training loss of the last round with everybody against that with 20 %: lower for PFLEGO, not for others."""
    cells = {(cell.row, cell.column): cell for cell in participation_cells(found.scale)}
    few, many = f"{SHARES[0]} %", f"{SHARES[-1]} %"
    ratios: dict[str, float] = {}
    for row in ("PFLEGO", "FedPer", "FedAvg"):
        pair = [found.outcomes(cells[row, column]) for column in (few, many)]
        if not all(pair):
            return None
        losses = [outcome.tail(TRAIN_LOSS) for one in pair for outcome in (one[0],)]
        ratios[row] = losses[1] / losses[0]
    words = "final training loss with everybody over that with 20 %: " + ", ".join(
        f"{row} {value:.2f}" for row, value in ratios.items()
    )
    holds = ratios["PFLEGO"] < min(ratios["FedPer"], ratios["FedAvg"])
    return Verdict(verdict="holds" if holds else "fails", figure=words)


CLAIMS = (
    Claim(
        name="H1",
        text="PFLEGO is best at high and medium personalisation (cohort after training, as published).",
        judge=judge_cohort,
        recipes=("table-1",),
    ),
    Claim(
        name="H1b",
        text="PFLEGO is above FedPer at high and medium personalisation on all clients (E2).",
        judge=judge_best,
        recipes=("table-1",),
    ),
    Claim(name="H1c", text="FedAvg is best without personalisation.", judge=judge_none, recipes=("table-1",)),
    Claim(
        name="H2",
        text="PFLEGO has the lowest training loss round by round (equation 1: all clients).",
        judge=judge_loss,
        recipes=("table-1",),
    ),
    Claim(
        name="H2, cohort",
        text="PFLEGO has the lowest training loss round by round (the cohort after its training, as in the code).",
        judge=judge_cohort_loss,
        recipes=("table-1",),
    ),
    Claim(
        name="H3",
        text="A round costs a client two network passes, whatever tau.",
        judge=judge_passes,
        recipes=("counts",),
    ),
    Claim(
        name="H4",
        text="A round is an exact, unbiased step of SGD on the joint loss.",
        judge=judge_exact,
        recipes=("exactness",),
    ),
    Claim(
        name="H5",
        text="More clients in a round make PFLEGO faster, and not FedPer or FedAvg.",
        judge=judge_participation,
        recipes=("figure-6",),
    ),
)


def mnist_high(row: str) -> Cell:
    return image_cell("mnist", "high", row, "micro")


def above_fedper(found: Found) -> tuple[bool, str]:
    verdict = better(paired(found, mnist_high("PFLEGO"), mnist_high("FedPer")), "PFLEGO", "FedPer")
    return (verdict is not None and verdict.verdict == "holds", "" if verdict is None else verdict.figure)


def fedavg_best(found: Found) -> tuple[bool, str]:
    cells = {row: image_cell("mnist", "none", row, "micro") for row in ("PFLEGO", "FedPer", "FedAvg")}
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
        cells=tuple(image_cell("mnist", "none", row, "micro") for row in ("PFLEGO", "FedPer", "FedAvg")),
        holds=fedavg_best,
    ),
    Direction(
        name="local-labels-need-training",
        text="MNIST, two classes each, local labels: FedAvg's shared model is of no use before local training",
        cells=(mnist_high("FedAvg"),),
        holds=local_labels_need_training,
    ),
)
