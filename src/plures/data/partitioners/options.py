"""Checks of the options that rules have in common; each gives the problems it finds, to be told at once."""

from __future__ import annotations

from math import isfinite

import numpy as np

from plures.core.errors import InvalidConfig


def problems_of_counts(least: int = 1, **counts: int) -> list[str]:
    """Options that are whole numbers."""
    return [
        f"{name} is {count!r}: it must be a whole number of at least {least}."
        for name, count in counts.items()
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < least
    ]


def problems_of_positive(example: float, **values: float) -> list[str]:
    """Options that are numbers above 0."""
    return [
        f"{name} is {value!r}: it must be a positive number, for example {example}."
        for name, value in values.items()
        if not (_is_number(value) and value > 0)
    ]


def problems_of_ranges(most: float, **values: float) -> list[str]:
    """Options that are numbers from 0 to `most`."""
    return [
        f"{name} is {value!r}: it must be a number from 0 to {most:g}."
        for name, value in values.items()
        if not (_is_number(value) and 0 <= value <= most)
    ]


def refuse(problems: list[str]) -> None:
    if problems:
        raise InvalidConfig(problems)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
