"""How a method makes a model for a newcomer, in a sentence."""

from __future__ import annotations

from plures.core.method import Budget, Phase
from plures.core.program import Program
from plures.core.types import FROZEN, PERSONAL, Part, travels
from plures.local.budgets import Epochs, Steps
from plures.local.newcomers import OwnVisits
from plures.server.hyper_round import EmbeddingSteps


def way_of(program: Program) -> str:
    """What a newcomer does to get its model."""
    method = program.method
    tuning = " and then ".join(told_phase(phase) for phase in method.adapt)
    if isinstance(method.welcome, EmbeddingSteps):
        return f"it learns an embedding in {method.welcome.count} visits of its own; the hypernetwork makes its model"
    if isinstance(method.welcome, OwnVisits) and method.welcome.count:
        return f"it finds its masks in {counted(method.welcome.count, 'visit')} of its own, then it {tuning}"
    if method.welcome is not None and not isinstance(method.welcome, OwnVisits):
        return "as the method welcomes newcomers (Method.welcome)"
    if not method.adapt:
        return f"{method.name} has no way for newcomers (no phases in adapt): it gets the shared model as it is"
    return f"it {tuning}"


def told_phase(phase: Phase) -> str:
    moved = " and ".join(dict.fromkeys(map(told_part, phase.moves)))
    return f"trains {moved} for {told_budget(phase.budget)}"


def told_part(part: Part) -> str:
    if travels(part):
        return "its copy of the shared part"
    name = part.removeprefix(FROZEN).removeprefix(".")
    return "its personal part" if part == PERSONAL else f"its {name or 'copy of the fixed part'}"


def told_budget(budget: Budget) -> str:
    if isinstance(budget, Epochs):
        return f"{counted(budget.count, 'epoch')}{batches(budget.batch)}"
    if isinstance(budget, Steps):
        return f"{counted(budget.count, 'step')}{batches(budget.batch)}"
    return str(budget)


def batches(size: int | str) -> str:
    return " on all its examples" if size == "full" else f" in batches of {size}"


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
