"""More clients are called than are wanted, and the first of them to arrive are taken."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from plures.core.errors import InvalidConfig
from plures.core.seeds import generator
from plures.participation.cohorts import Cohort, Sampler, subset

__all__ = ["OverSelection", "over_select"]

ROUND_OFF = 1e-9
"""1.1 * 10 is a little more than 11."""


@dataclass(frozen=True, kw_only=True)
class OverSelection:
    """Calls the cohort of another sampler and more clients beside it, drawn uniformly from the rest."""

    sampler: Sampler
    factor: float

    def __post_init__(self) -> None:
        wrong = not isinstance(self.factor, Real) or isinstance(self.factor, bool)
        if wrong or not 1 <= self.factor < math.inf:
            raise InvalidConfig(f"over_select must be a finite number, 1 or more, not {self.factor!r}.")

    def check(self, num_clients: int) -> None:
        """Refuse where nobody is ever left to be called beside the cohort; else as many are called as there are."""
        self.sampler.check(num_clients)
        if self.factor > 1 and self.sampler.draw(num_clients, 1, 0).inclusion >= 1:
            raise InvalidConfig(
                f"over_select = {self.factor:g}, but every cohort has all {num_clients} clients: nobody is left to be "
                "called beside it. Make the cohort smaller, or remove over_select."
            )

    def draw(self, num_clients: int, round: int, seed: int) -> Cohort:
        clients, inclusion = self.sampler.draw(num_clients, round, seed)[:2]
        wanted = len(clients)
        called = min(math.ceil(self.factor * wanted - ROUND_OFF), num_clients)
        places = subset(num_clients - wanted, called - wanted, generator(seed, "over-select", round))
        everybody = sorted([*clients, *beside(clients, places)])
        # Whoever is called is as likely as the others to be among those that are taken, so that nothing changes by it.
        return Cohort(tuple(everybody), inclusion, wanted)


def beside(clients: Sequence[int], places: Sequence[int]) -> list[int]:
    """The clients in these places among all that are not of the cohort, without a list of all."""
    before = [client - number for number, client in enumerate(sorted(clients))]
    return [place + bisect_right(before, place) for place in places]


def over_select(sampler: Sampler, factor: float) -> Sampler:
    """Calls `factor` times as many clients as `sampler` draws, rounded up, and wants as many as it draws."""
    return OverSelection(sampler=sampler, factor=factor)
