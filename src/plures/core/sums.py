"""Weighted sums of uploads over fixed blocks of the cohort.

Floating-point sums depend on their order. Blocks are cut from the cohort by position, never by worker or
by time of arrival, so one worker or a hundred give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch

from plures.core.types import Params
from plures.core.visit import Upload

BLOCK = 16
"""Clients in a block."""

Item = TypeVar("Item")


class Summing(Protocol):
    """Takes uploads in, and says where the server moves."""

    @property
    def held(self) -> Params:
        """By coordinate, more than 0 where somebody held it; of uploads that held everything, nothing."""

    @property
    def num_added(self) -> int: ...

    def add(self, upload: Upload, *, share: float, divisor: float, per_coordinate: bool) -> None: ...

    def merge(self, other: Any) -> None:
        """Add a later block, of the same kind."""

    def scale(self, factor: float) -> None:
        """As if every share had been so many times as large."""

    def direction(self, *, divided: bool) -> Params: ...


@runtime_checkable
class SumsBuffers(Protocol):
    """Makes sums of uploads, and others for running statistics."""

    def __call__(self) -> Summing: ...

    def buffers(self) -> Summing: ...


@dataclass(kw_only=True)
class Sum:
    """A running total of share * values, share * held, and the divisor."""

    values: Params
    held: Params
    """Per coordinate; kept where uploads say what they held, or a method divides by it."""
    divisor: float = 0.0
    num_added: int = 0
    per_coordinate: bool = False
    """Whether to divide by what was held of each coordinate."""

    def add(self, upload: Upload, *, share: float, divisor: float, per_coordinate: bool) -> None:
        accumulate(self.values, upload.values, share)
        if per_coordinate or upload.held is not None:
            accumulate(self.held, {name: held_of(upload, name) for name in upload.values}, share)
        self.divisor += divisor
        self.num_added += 1
        self.per_coordinate = per_coordinate

    def merge(self, other: Sum) -> None:
        """Add a later block."""
        accumulate(self.values, other.values, 1.0)
        accumulate(self.held, other.held, 1.0)
        self.divisor += other.divisor
        self.num_added += other.num_added
        self.per_coordinate = other.per_coordinate

    def scale(self, factor: float) -> None:
        """As if every share had been so many times as large."""
        self.values = {name: value * factor for name, value in self.values.items()}
        self.held = {name: value * factor for name, value in self.held.items()}

    def direction(self, *, divided: bool) -> Params:
        """What the server moves against: the sum, divided by the divisor or coordinate by coordinate."""
        if self.per_coordinate:
            return {name: per_held(value, self.held[name]) for name, value in self.values.items()}
        if divided:
            return {name: value / self.divisor for name, value in self.values.items()}
        return self.values


def held_of(upload: Upload, name: str) -> torch.Tensor:
    """What a client held of a parameter, in the precision of its values; all of it, if it does not say."""
    value = upload.values[name]
    return torch.ones_like(value) if upload.held is None else upload.held[name].to(value.dtype)


def empty_sum() -> Sum:
    return Sum(values={}, held={})


def accumulate(totals: Params, values: Params, share: float) -> None:
    """totals += share * values, in place; integers are summed as real numbers."""
    for name, value in values.items():
        if name in totals:
            totals[name].add_(value, alpha=share)
        else:
            totals[name] = value.to(torch.get_default_dtype()) * share if is_integer(value) else value * share


def is_integer(value: torch.Tensor) -> bool:
    return not value.is_floating_point()


def per_held(value: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    """value / held where somebody held the coordinate, zero elsewhere."""
    return torch.where(held > 0, value / held.clamp_min(torch.finfo(held.dtype).tiny), torch.zeros_like(value))


def in_blocks(items: Iterable[Item], size: int = BLOCK) -> Iterator[list[Item]]:
    """The items in order, `size` at a time."""
    rest = iter(items)
    while block := list(islice(rest, size)):
        yield block
