"""What is sure of pFedGate at the scale micro."""

from __future__ import annotations

from plures.models import leaf_cnn
from plures.papers.cells import Cell
from plures.papers.pfedgate import settings as s
from plures.papers.pfedgate.columns import FEW_CLOTHES
from plures.papers.pfedgate.counts import density_of
from plures.papers.pfedgate.numbers import extra, metric_of
from plures.papers.reading import Read, entry, last
from plures.papers.recipe import Direction, Found

GATED = s.pfedgate(FEW_CLOTHES, 0.3)
AVERAGED = s.fedavg(FEW_CLOTHES)
ROUNDING = 1e-4


def number(found: Found, cell: Cell, read: Read) -> float:
    """NaN where it was not run, so that nothing holds."""
    measured = entry(found, cell, read).measured
    return measured if isinstance(measured, float) else float("nan")


def keeps_its_density(found: Found) -> tuple[bool, str]:
    """The share that trained gates keep is the one that was computed beforehand, and never more than s."""
    options = {name: value for name, value in FEW_CLOTHES.model.items() if name != "name"}
    planned = density_of(leaf_cnn(classes=10, **options), 0.3)
    mean, most = (number(found, GATED, extra("gate_history", name)) for name in ("density", "largest_density"))
    holds = abs(mean - planned) < ROUNDING and most <= 0.3
    return holds, f"kept {mean:.4f} on average and {most:.4f} at most, planned {planned:.4f}, s = 0.3"


def tuning_helps(found: Found) -> tuple[bool, str]:
    """FedAvg-FT is above FedAvg."""
    tuned, shared = (number(found, AVERAGED, last(metric_of(row))) for row in (s.TUNING, s.FEDAVG))
    return tuned > shared, f"FedAvg-FT {tuned:.1f}, FedAvg {shared:.1f}"


DIRECTIONS = (
    Direction(
        name="density",
        text="pFedGate's models have the density that was computed beforehand, below s.",
        cells=(GATED,),
        holds=keeps_its_density,
    ),
    Direction(
        name="fine-tuning",
        text="One epoch on a copy improves FedAvg's model where clients have different labels.",
        cells=(AVERAGED,),
        holds=tuning_helps,
    ),
)
