"""What is sure at the scale micro."""

from __future__ import annotations

from plures.papers.cells import Cell
from plures.papers.fedalt.claims import gains, judge_5
from plures.papers.fedalt.deltas import change
from plures.papers.fedalt.settings import FEDALT, FINETUNE, cells_of, key
from plures.papers.fedalt.tasks import EMNIST, OUTPUT
from plures.papers.recipe import Direction, Found

HELPS: list[Cell] = cells_of("micro", (EMNIST,), [FINETUNE, key(FEDALT, OUTPUT)])
TUNED: list[Cell] = cells_of("micro", (EMNIST,), [key(FEDALT, OUTPUT, stateless=True), key(FEDALT, OUTPUT)])
LEAST_GAIN = 1.0
"""Points; it was 3.7 with the output layer and 4.4 with the whole model."""


def personal_models_help(found: Found) -> tuple[bool, str]:
    changes = {cell.column: change(found, cell) for cell in HELPS}
    gained = {name: None if pairing is None else 100 * pairing.difference() for name, pairing in changes.items()}
    told = ", ".join(f"{name} {'not run' if one is None else f'{one:+.2f}'}" for name, one in gained.items())
    return all(one is not None and one > LEAST_GAIN for one in gained.values()), told


def tuning_matters_without_state(found: Found) -> tuple[bool, str]:
    pairing = gains(found, *TUNED)
    if pairing is None:
        return False, "not run"
    difference = 100 * pairing.difference()
    return difference > 0, f"stage (c) adds {difference:+.2f} points more without state"


def coupling(found: Found) -> tuple[bool, str]:
    verdict = judge_5(found)
    return verdict.verdict == "holds", verdict.figure


DIRECTIONS = [
    Direction(
        name="personal-models-help",
        text="Clients with styles of their own gain by fine-tuning and by FedAlt on the output layer.",
        cells=HELPS,
        holds=personal_models_help,
    ),
    Direction(
        name="tuning-without-state",
        text="Fine-tuning at the end adds more for clients without state.",
        cells=TUNED,
        holds=tuning_matters_without_state,
    ),
    Direction(
        name="coupling",
        text="FedAlt's lead over FedSim grows with the coupling.",
        cells=(),
        holds=coupling,
    ),
]
