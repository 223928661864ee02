"""The constant rate, and the checks that every rate and count given as an option goes through."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

from plures.core.errors import InvalidConfig
from plures.core.types import Schedule


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The same rate in every round."""

    value: float

    def __post_init__(self) -> None:
        check_rate("a constant rate", self.value)

    def __call__(self, round: int) -> float:
        return self.value


def as_schedule(rate: float | Schedule) -> Schedule:
    """A schedule as it is; a number as the same rate in every round."""
    return rate if callable(rate) else Constant(value=check_rate("a rate", rate))


def check_schedule(what: str, schedule: Schedule) -> None:
    """Refuse a bare number where the rate of each round will be asked for."""
    if not callable(schedule):
        raise InvalidConfig(f"{what} must be a schedule such as constant(0.1), not {schedule!r}.")


def check_rate(what: str, value: float) -> float:
    """The value, if it is a finite number that is not negative."""
    if hasattr(value, "update"):
        raise InvalidConfig(f"{what} is a rate or a schedule, not an optimiser such as {value!r}.")
    if not _is_finite(value) or value < 0:
        raise InvalidConfig(f"{what} must be a finite number, 0 or more, not {value!r}.")
    return float(value)


def check_positive(what: str, value: float) -> float:
    """The value, if it is a finite number above zero."""
    if not _is_finite(value) or value <= 0:
        raise InvalidConfig(f"{what} must be a finite number above 0, not {value!r}.")
    return float(value)


def check_decay(what: str, value: float) -> float:
    """The value, if it is a share of the past that fades: 0 or more, and below 1."""
    if not _is_finite(value) or not 0 <= value < 1:
        raise InvalidConfig(f"{what} must be 0 or more and below 1, not {value!r}.")
    return float(value)


def check_count(what: str, value: int, *, least: int = 0) -> int:
    """The value, if it is a whole number that is large enough."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InvalidConfig(f"{what} must be a whole number, {least} or more, not {value!r}.")
    return int(value)


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
