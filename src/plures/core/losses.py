"""Clients whose work does not reach the server: who they are, why, and how many of them a round bears."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from plures.core.errors import ClientFailed, InvalidData, TooFewClients
from plures.core.rates import check_count, check_positive
from plures.core.visit import Visit

LossKind = Literal["absent", "late", "surplus", "gone", "failed", "diverged", "misfit", "too_large", "nothing"]
"""absent: never began; late: after the deadline; surplus: others were quicker; gone: trained, and was not heard of
again; failed: an error while it worked; diverged: no finite numbers; misfit: names, shapes or dtypes that are not the
shared part's; too_large: a norm beyond the bound; nothing: an empty upload."""


ROUND_OFF = 1e-9
"""0.07 * 100 is a little more than 7."""

Done = TypeVar("Done")


class Lost(NamedTuple):
    """What an engine gives instead of a result."""

    client: int
    error: ClientFailed


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A client of the cohort whose work is not in the sum, for the records."""

    client: int
    name: str
    kind: LossKind
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What a round bears."""

    least_cohort: int | float | None = None
    """So many of those that are wanted, or such a share of them, must arrive; None: nobody may be missing."""
    deadline: float | None = None
    """Seconds a client may take."""
    largest_norm: float | None = None
    """Of an upload; None: any that is finite."""

    def __post_init__(self) -> None:
        least = self.least_cohort
        is_share = isinstance(least, float) and 0 < least <= 1
        if least is not None and not is_share:
            check_count("least_cohort, if it is no share above 0 and up to 1.0,", least)  # type: ignore[arg-type]
        for name, value in (("deadline", self.deadline), ("largest_norm", self.largest_norm)):
            if value is not None:
                check_positive(name, value)

    def least(self, wanted: int) -> int:
        """How many must arrive of so many."""
        if self.least_cohort is None:
            return wanted
        if isinstance(self.least_cohort, int):
            return min(self.least_cohort, wanted)
        return math.ceil(self.least_cohort * wanted - ROUND_OFF)

    @property
    def bears_losses(self) -> bool:
        return self.least_cohort is not None


STRICT = Tolerance()
"""Whoever is lost ends the run."""


def attempted(visit: Visit, work: Callable[[], Done]) -> Done | Lost:
    """What comes of a client's work; where that fails, who is lost by which error."""
    try:
        return work()
    except ClientFailed as error:
        return Lost(visit.client, error)
    except (OSError, InvalidData) as error:
        return Lost(visit.client, unreadable(visit, error))


def unreadable(visit: Visit, error: Exception) -> ClientFailed:
    """A client whose examples are not to be had."""
    failed = ClientFailed(
        f"The examples cannot be read: {type(error).__name__}: {error}",
        client=visit.name or str(visit.client),
        round=visit.round,
        phase="data",
        remedy="Are its files where they were when the run began?",
    )
    failed.__cause__ = error
    return failed


def check_enough(arrived: int, wanted: int, tolerance: Tolerance, missing: Sequence[Missing], round: int) -> None:
    """End the run at the last whole round where too few have arrived."""
    least = tolerance.least(wanted)
    if arrived >= least:
        return
    kinds = sorted({one.kind for one in missing})
    counts = ", ".join(f"{sum(one.kind == kind for one in missing)} {kind}" for kind in kinds)
    first = next((one for one in missing if one.reason), None)
    raise TooFewClients(
        f"Round {round}: {arrived} of {wanted} clients arrived, but {least} must ({counts})."
        + ("" if first is None else f" For example: {first.reason}")
        + " Lower least_cohort, or see to these clients; the run can be resumed."
    )
