"""How a newcomer finds what `adapt` alone cannot give it, such as masks: by visits of its own, before it adapts."""

from __future__ import annotations

from dataclasses import dataclass

from plures.core.adapting import Newcomer
from plures.core.method import Welcome
from plures.core.rates import check_count
from plures.core.types import Params

__all__ = ["OwnVisits", "own_visits"]


@dataclass(frozen=True, kw_only=True)
class OwnVisits:
    """Visits whose uploads nobody adds up, in rounds 1, 2, ... of the newcomer's own; then `adapt`.

    Each begins with the shared model, downloaded by what the newcomer has kept of the one before.
    """

    count: int

    def __post_init__(self) -> None:
        check_count("the number of a newcomer's own visits", self.count)

    def __call__(self, newcomer: Newcomer) -> Params:
        state = newcomer.state()
        for round in range(1, self.count + 1):
            state = newcomer.work(state, round).result.state
        return newcomer.adapted(state)


def own_visits(count: int) -> Welcome:
    """So many visits of a newcomer's own before it adapts; of none, `adapt` alone."""
    return OwnVisits(count=count)
