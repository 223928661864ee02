"""Rates as functions of the round, the first of which is 1; constant within a round."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from plures.core.errors import InvalidConfig
from plures.core.rates import Constant, as_schedule, check_count, check_positive, check_rate
from plures.core.types import Schedule

__all__ = [
    "SCHEDULES",
    "as_schedule",
    "constant",
    "cosine",
    "exponential",
    "inverse_sqrt",
    "linear",
    "power",
]


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """start * factor ** ((round - 1) // every)."""

    start: float
    factor: float
    every: int

    def __post_init__(self) -> None:
        check_rate("start of an exponential schedule", self.start)
        check_rate("factor of an exponential schedule", self.factor)
        check_count("every of an exponential schedule", self.every, least=1)

    def __call__(self, round: int) -> float:
        return float(self.start * self.factor ** ((round - 1) // self.every))


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """How far a run is: a rise over its first rounds, then a way from the peak to the last round."""

    rounds: int
    share: float
    """Share of the rounds that the rise takes."""

    def __post_init__(self) -> None:
        check_count("rounds of a schedule", self.rounds, least=1)
        check_rate("warmup of a schedule", self.share)
        if self.share > 1:
            raise InvalidConfig(f"warmup of a schedule is a share of the rounds, at most 1, not {self.share!r}.")

    @property
    def num_rising(self) -> int:
        return round(self.share * self.rounds)

    def rise(self, round: int) -> float:
        """From 1 / num_rising in round 1 to 1 in round num_rising, and 1 from there on."""
        return min(1.0, round / self.num_rising) if self.num_rising else 1.0

    def descent(self, round: int) -> float:
        """0 up to the peak, 1 in the last round and ever after."""
        peak = max(1, self.num_rising)
        if round <= peak:
            return 0.0
        return 1.0 if round >= self.rounds else (round - peak) / (self.rounds - peak)


@dataclass(frozen=True, kw_only=True)
class Linear:
    """A linear rise to `start`, then a linear way to `end` in the last round."""

    start: float
    end: float
    rounds: int
    warmup: float

    def __post_init__(self) -> None:
        check_rate("start of a linear schedule", self.start)
        check_rate("end of a linear schedule", self.end)
        WarmUp(rounds=self.rounds, share=self.warmup)

    def __call__(self, round: int) -> float:
        warm_up = WarmUp(rounds=self.rounds, share=self.warmup)
        done = warm_up.descent(round)
        return warm_up.rise(round) * (self.start * (1 - done) + self.end * done)


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """A linear rise to `start`, then half a cosine wave to `end` in the last round."""

    start: float
    end: float
    rounds: int
    warmup: float

    def __post_init__(self) -> None:
        check_rate("start of a cosine schedule", self.start)
        check_rate("end of a cosine schedule", self.end)
        WarmUp(rounds=self.rounds, share=self.warmup)

    def __call__(self, round: int) -> float:
        warm_up = WarmUp(rounds=self.rounds, share=self.warmup)
        height = (1 + math.cos(math.pi * warm_up.descent(round))) / 2
        return warm_up.rise(round) * (self.end + (self.start - self.end) * height)


@dataclass(frozen=True, kw_only=True)
class InverseSqrt:
    """start / sqrt(round)."""

    start: float

    def __post_init__(self) -> None:
        check_rate("start of an inverse_sqrt schedule", self.start)

    def __call__(self, round: int) -> float:
        return self.start / math.sqrt(round)


@dataclass(frozen=True, kw_only=True)
class Power:
    """a / (b + round - 1) ** p."""

    a: float
    b: float
    p: float

    def __post_init__(self) -> None:
        check_rate("a of a power schedule", self.a)
        check_positive("b of a power schedule", self.b)
        check_rate("p of a power schedule", self.p)

    def __call__(self, round: int) -> float:
        return float(self.a / (self.b + round - 1) ** self.p)


def constant(value: float) -> Schedule:
    """The same rate in every round."""
    return Constant(value=value)


def exponential(start: float, factor: float, every: int = 1) -> Schedule:
    """Times `factor` after every `every` rounds; with every > 1 this is step decay."""
    return Exponential(start=start, factor=factor, every=every)


def linear(start: float, rounds: int, warmup: float = 0.1, end: float = 0.0) -> Schedule:
    """A linear rise over the first warmup * rounds rounds, then linear decay to `end` in the last."""
    return Linear(start=start, end=end, rounds=rounds, warmup=warmup)


def cosine(start: float, rounds: int, end: float = 0.0, warmup: float = 0.0) -> Schedule:
    """A linear rise over the first warmup * rounds rounds, then cosine decay to `end` in the last."""
    return Cosine(start=start, end=end, rounds=rounds, warmup=warmup)


def inverse_sqrt(start: float) -> Schedule:
    """`start` in round 1, then start / sqrt(round)."""
    return InverseSqrt(start=start)


def power(a: float, b: float, p: float) -> Schedule:
    """a / (b + round - 1) ** p; meets the conditions of Robbins and Monro for 1/2 < p <= 1."""
    return Power(a=a, b=b, p=p)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "exponential": exponential,
    "linear": linear,
    "cosine": cosine,
    "inverse_sqrt": inverse_sqrt,
    "power": power,
}
