"""Outcomes and papers that tests make up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plures.papers.blocks import Block, Entry, Figure, Grid, Verdict, Words
from plures.papers.cells import Cell
from plures.papers.outcomes import Made, Outcome
from plures.papers.reading import better, entry, last, lines, paired
from plures.papers.recipe import Claim, Direction, Found, Paper, Recipe, Scale

MADE = Made(date="2026-01-02", commit="abc", machine="a machine", version="0.1.0", seconds=2.0)
METRIC = "personal/test/accuracy"


def cell(row: str, method: str = "local", rounds: int = 2, **table: object) -> Cell:
    """A short run on the digits that come with the library."""
    data = {"source": "digits", "partition": "iid", "clients": 4, "examples": 200}
    evaluation = {"every": 1, "splits": ["test"]}
    return Cell(
        row=row,
        column="digits",
        table={"method": method, "rounds": rounds, "data": data, "evaluation": evaluation, **table},
    )


def outcome(
    scores: Sequence[float], *, key: str = "k", rounds: Sequence[int] = (1, 2), method: str = "pflego"
) -> Outcome:
    """Clients with these accuracies and as many examples each; the curve rises to their mean."""
    mean = float(np.mean(scores))
    values = [mean * (place + 1) / len(rounds) for place in range(len(rounds))]
    return Outcome(
        key=key,
        experiment={"method": method, "model": {"name": "mlp"}},
        made=MADE,
        status="finished",
        final={METRIC: {"weighted": mean, "mean": mean, "bottom_decile": min(scores)}},
        curves={METRIC: {"rounds": list(rounds), "values": values}},
        clients={
            "personal/test": {
                "clients": list(range(len(scores))),
                "examples": [10.0] * len(scores),
                "accuracy": list(scores),
            }
        },
        cost={"dense_flops": 1e9},
    )


class MadeUp:
    """Outcomes of cells, by their configuration."""

    def __init__(self, scale: Scale = "micro") -> None:
        self._scale, self.known = scale, dict[str, dict[int, Outcome]]()

    @property
    def scale(self) -> Scale:
        return self._scale

    def put(self, cell: Cell, found: Outcome, seed: int = 0) -> None:
        self.known.setdefault(cell.key(0), {})[seed] = found

    def outcomes(self, cell: Cell) -> dict[int, Outcome]:
        return self.known.get(cell.key(0), {})


OWN, OTHER = cell("Local"), cell("FedAvg", "fedavg")


def show(found: Found) -> list[Block]:
    rows: dict[str, list[Entry | None]] = {one.row: [entry(found, one, last(METRIC), 91.5)] for one in (OWN, OTHER)}
    panels = {"digits": lines(found, {"Local": OWN}, METRIC)}
    return [
        Words(text="Some words."),
        Grid(title="Accuracy", corner="method", columns=["digits"], rows=rows, note="A note."),
        Figure(name="curves", title="Curves", x="round", y="accuracy", panels=panels),
    ]


def judge(found: Found) -> Verdict | None:
    return better(paired(found, OWN, OTHER, against="global"), "Local", "FedAvg")


def is_measured(found: Found) -> tuple[bool, str]:
    measured = entry(found, OWN, last(METRIC)).measured
    return measured is not None, f"Local {measured}"


PAPER = Paper(
    name="made-up",
    title="A paper",
    citation="Somebody, 2026.",
    recipes=(
        Recipe(
            name="table-1",
            title="two methods",
            cells=lambda scale: [OWN, OTHER] if scale == "micro" else [],
            show=show,
            settings={"micro": "Digits."},
            without={"full": "Too large."},
            differs="They do not.",
        ),
        Recipe(name="counts", title="a closed form", show=lambda found: [Words(text="Two and two are four.")]),
    ),
    claims=(Claim(name="H1", item="table-1", text="Local is better.", judge=judge),),
    slips=("Two tables differ.",),
    directions=(Direction(name="measured", text="Local has a score", cells=(OWN,), holds=is_measured),),
)
