"""What a search may try: for each key of an experiment a list of values, or a range."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any

from plures.core.errors import InvalidConfig, did_you_mean

RANGE_KEYS = ("low", "high", "log", "step")
NOT_SEARCHED = ("seed", "engine", "device", "out", "evaluation", "tune")
"""Keys and tables that say how a run is made and looked at, not what it comes to."""
FEW = 32
"""Of so many corners all are tried."""

Point = dict[str, Any]
"""One value for every key."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One of these."""

    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values

    @property
    def size(self) -> int:
        return len(self.values)

    def all(self) -> Iterator[Any]:
        return iter(self.values)


@dataclass(frozen=True, kw_only=True)
class Range:
    """From low to high, ends included: whole numbers if both ends are, else real ones."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.low, self.high

    @property
    def size(self) -> int | None:
        """How many values there are; None: more than can be told."""
        step = 1 if self.whole and self.step is None else self.step
        return None if step is None else round((self.high - self.low) / step) + 1

    def all(self) -> Iterator[Any]:
        return (stepped(self.low, number, self.step or 1) for number in range(self.size or 0))


Space = Mapping[str, Choice | Range]


def stepped(low: float, number: int, step: float) -> float:
    """So many steps above low, in decimals as they are written: 0.1 and one step of 0.2 are 0.3."""
    if isinstance(low, int) and isinstance(step, int):
        return low + number * step
    return float(Decimal(str(low)) + number * Decimal(str(step)))


def read_space(table: Mapping[str, Any]) -> dict[str, Choice | Range]:
    """The table [tune.search], or its like from Python; every problem is told at once."""
    found: dict[str, Choice | Range] = {}
    problems: list[str] = []
    for key, given in flattened(table):
        try:
            check_key(key)
            found[key] = read_range(key, given) if isinstance(given, Mapping) else read_choice(key, given)
        except InvalidConfig as error:
            problems += error.problems
    for key in found:
        problems += [
            f"tune.search has both {key} and {other}, which is inside it. Keep one of them."
            for other in found
            if other.startswith(f"{key}.")
        ]
    if not found and not problems:
        problems = [
            'There is nothing to search. Give [tune.search] keys, such as "method_options.lr" = [0.01, 0.1, 1.0].'
        ]
    if problems:
        raise InvalidConfig(problems)
    return found


def flattened(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Keys as --set has them, also where a file's dots have made tables of them."""
    for key, value in table.items():
        if isinstance(value, Mapping) and not set(value) & set(RANGE_KEYS):
            yield from flattened(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def check_key(key: str) -> None:
    first = key.partition(".")[0]
    if first in NOT_SEARCHED:
        raise InvalidConfig(f"tune.search has {key}, which cannot be searched: remove it.")


def read_choice(key: str, given: Any) -> Choice:
    if not isinstance(given, list | tuple):
        raise InvalidConfig(
            f"tune.search: {key} = {given!r} is neither a list nor a range. Write [0.01, 0.1] or "
            "{low = 0.01, high = 0.1, log = true}."
        )
    if not given:
        raise InvalidConfig(f"tune.search: {key} has an empty list. Give values to choose from.")
    texts = [json.dumps(value, default=str) for value in given]
    if len(set(texts)) < len(texts) or len({repr(value) for value in plain_numbers(given)}) < len(given):
        raise InvalidConfig(f"tune.search: {key} = {list(given)} has a value twice. Give each once.")
    return Choice(values=tuple(given))


def plain_numbers(values: Sequence[Any]) -> list[Any]:
    """1, 1.0 and true are the same to a sampler."""
    return [float(value) if isinstance(value, int | float) else value for value in values]


def read_range(key: str, given: Mapping[str, Any]) -> Range:
    where = f"tune.search: {key}"
    unknown = [word for word in given if word not in RANGE_KEYS]
    if unknown:
        raise InvalidConfig([f"{where} has no '{word}'. {did_you_mean(word, RANGE_KEYS)}" for word in unknown])
    missing = [word for word in ("low", "high") if word not in given]
    if missing:
        raise InvalidConfig(f"{where} has no '{missing[0]}': a range is {{low = 0.01, high = 1.0}}.")
    log, step = given.get("log", False), given.get("step")
    if not isinstance(log, bool):
        raise InvalidConfig(f"{where} has log = {log!r}: give true or false.")
    for word in ("low", "high", *(["step"] if step is not None else [])):
        if not is_number(given[word]):
            raise InvalidConfig(f"{where} has {word} = {given[word]!r}: give a number.")
    return checked_range(where, given["low"], given["high"], log, step)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def checked_range(where: str, low: float, high: float, log: bool, step: float | None) -> Range:
    if low >= high:
        raise InvalidConfig(f"{where} goes from {low} to {high}, which is empty: low is below high.")
    if log and low <= 0:
        raise InvalidConfig(f"{where} has low = {low}, but a logarithmic range begins above 0.")
    if step is None:
        return Range(low=low, high=high, log=log)
    if log:
        raise InvalidConfig(f"{where} has both log and step. Keep one of them, or give a list.")
    # The small number is for shares such as 0.1, which no float holds exactly.
    number = math.floor((high - low) / step + 1e-9) if step > 0 else 0
    if number < 1:
        raise InvalidConfig(f"{where} has step = {step}: give one above 0 that fits between {low} and {high}.")
    if not isinstance(step, int):
        low = float(low)
    return Range(low=low, high=stepped(low, number, step), step=step)  # the last step at or below high


def num_points(space: Space) -> int | None:
    """How many points there are; None: more than can be told."""
    sizes = [values.size for values in space.values()]
    return None if None in sizes else math.prod(size or 0 for size in sizes)


def grid(space: Space) -> Iterator[Point]:
    """Every point, in the order of the file; the last key changes fastest."""
    return (dict(zip(space, values, strict=True)) for values in product(*(one.all() for one in space.values())))


def check_grid(space: Space) -> None:
    endless = [key for key, values in space.items() if values.size is None]
    if endless:
        raise InvalidConfig(
            [
                f'tune.search: {key} is a range without a step, which sampler = "grid" cannot try one by one. Give a '
                "list or a step, or take another sampler."
                for key in endless
            ]
        )


def corners(space: Space) -> list[Point]:
    """Where to look for values that an experiment refuses: all corners, or of many those along each edge."""
    ends = {key: one.ends for key, one in space.items()}
    if math.prod(map(len, ends.values())) <= FEW:
        return [dict(zip(ends, values, strict=True)) for values in product(*ends.values())]
    found = []
    for base in ({key: values[0] for key, values in ends.items()}, {key: values[-1] for key, values in ends.items()}):
        found += [base | {key: value} for key, values in ends.items() for value in values]
    return found
