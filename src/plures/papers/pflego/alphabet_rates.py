"""How rates of alphabets at the scale small are chosen: short runs, by accuracy on validation data. Not in the papers.

In so few rounds and steps nothing is learnt with the papers' rates: FedPer has 3,000 steps where they have 250,000.
"""

from __future__ import annotations

from collections.abc import Mapping

from plures.papers.blocks import Block, Entry, Grid
from plures.papers.cells import Cell
from plures.papers.pflego.settings import Rates, Table, omniglot
from plures.papers.reading import entry, tail
from plures.papers.recipe import Found, Scale

TRIED_ROUNDS = 40
VALIDATION = "sampled/post_local/validation/accuracy"
"""As in Table 2: the cohort right after its training, mean of the last 10 rounds."""


STEPS = tuple(map(Rates, (0.1, 0.3, 0.5, 1.0)))
TRIED: Mapping[str, tuple[Rates, ...]] = {
    "PFLEGO": tuple(Rates(beta, rho) for beta in (0.009, 0.1, 0.5, 1.0, 2.0, 4.0) for rho in (0.001, 0.003, 0.01)),
    "FedPer": STEPS,
    "FedAvg": STEPS,
    "FedRep": (*STEPS, Rates(3.0), *(Rates(rate, body=5) for rate in (0.1, 0.3, 0.5, 1.0))),
    "FedBABU": tuple(map(Rates, (0.01, 0.03, 0.1, 0.3, 1.0))),
}
"""FedRecon takes PFLEGO's, FedProx and Ditto FedAvg's. FedBABU has momentum, which is ten times the rate in the end.
The papers do not say how many of FedRep's steps are the body's."""
DATA: Table = {"split": [0.8, 0.2, 0.0]}
"""A fifth of the training drawings to choose by."""


def rate_cell(row: str, rates: Rates) -> Cell:
    table = omniglot(row.lower(), "small", rates)
    chosen = {
        **table,
        "rounds": TRIED_ROUNDS,
        "data": table["data"] | DATA,
        "evaluation": table["evaluation"] | {"splits": ["validation"]},
    }
    return Cell(row=f"{row}, {rates}", column="omniglot", table=chosen, most_seeds=1)


def rate_cells(scale: Scale) -> list[Cell]:
    return [rate_cell(row, rates) for row, tried in TRIED.items() for rates in tried] if scale == "small" else []


def reached(found: Found, row: str, rates: Rates) -> Entry:
    return entry(found, rate_cell(row, rates), tail(VALIDATION))


def best(found: Found, row: str) -> Rates:
    """What has not run is not among them."""

    def score(rates: Rates) -> float:
        measured = reached(found, row, rates).measured
        return measured if isinstance(measured, float) else -1.0

    return max(TRIED[row], key=score)


def show_alphabet_rates(found: Found) -> list[Block]:
    rows = {f"{row}, {rates}": [reached(found, row, rates)] for row, tried in TRIED.items() for rates in tried}
    note = (
        f"Validation accuracy of the cohort right after its training, mean over the last 10 of {TRIED_ROUNDS} rounds. "
        "Table 2 at the scale small has the best of each method; FedRecon takes PFLEGO's, FedProx and Ditto FedAvg's. "
        "A cohort has three alphabets, so that a point or two are chance."
    )
    return [
        Grid(title="Rates of clients (PFLEGO: and of the server)", corner="rates", columns=["%"], rows=rows, note=note)
    ]
