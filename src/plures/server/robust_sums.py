"""Sums that shorten what is too long, and sums that wait for the last upload before they make anything of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from plures.core.refusing import norm_of, whole
from plures.core.sums import Sum, empty_sum, in_blocks, is_integer
from plures.core.types import Params
from plures.core.visit import Upload

__all__ = ["Added", "ClippedSum", "ClippedToMedian", "LateSum", "Settled"]


class Added(NamedTuple):
    """An upload as it came."""

    upload: Upload
    share: float
    divisor: float
    per_coordinate: bool


class Settled(Protocol):
    """What is made of all uploads."""

    @property
    def held(self) -> Params: ...

    def direction(self, *, divided: bool) -> Params: ...


@dataclass(kw_only=True)
class LateSum:
    """Keeps the uploads of a cohort, in order; `settle` makes of them what the server moves by, once all are there."""

    settle: Callable[[Sequence[Added]], Settled]
    added: list[Added] = field(default_factory=list)

    @property
    def num_added(self) -> int:
        return len(self.added)

    def add(self, upload: Upload, *, share: float, divisor: float, per_coordinate: bool) -> None:
        self._change([*self.added, Added(upload, share, divisor, per_coordinate)])

    def merge(self, other: LateSum) -> None:
        """Add a later block."""
        self._change(self.added + other.added)

    def scale(self, factor: float) -> None:
        self._change([one._replace(share=one.share * factor) for one in self.added])

    @property
    def held(self) -> Params:
        return self._settled.held

    def direction(self, *, divided: bool) -> Params:
        return self._settled.direction(divided=divided)

    @cached_property
    def _settled(self) -> Settled:
        return self.settle(self.added)

    def _change(self, added: list[Added]) -> None:
        self.added = added
        self.__dict__.pop("_settled", None)


@dataclass(kw_only=True)
class ClippedSum:
    """The method's own sum of uploads, each of which is shortened to a norm first; none is kept."""

    norm: float
    total: Sum = field(default_factory=empty_sum)

    @property
    def held(self) -> Params:
        return self.total.held

    @property
    def num_added(self) -> int:
        return self.total.num_added

    def add(self, upload: Upload, *, share: float, divisor: float, per_coordinate: bool) -> None:
        upload = shortened(upload, self.norm, length_of(upload, per_coordinate))
        self.total.add(upload, share=share, divisor=divisor, per_coordinate=per_coordinate)

    def merge(self, other: ClippedSum) -> None:
        self.total.merge(other.total)

    def scale(self, factor: float) -> None:
        self.total.scale(factor)

    def direction(self, *, divided: bool) -> Params:
        return self.total.direction(divided=divided)


@dataclass(frozen=True)
class ClippedToMedian:
    """The method's own sum of uploads, none of which is longer than the median of them is long."""

    def __call__(self, added: Sequence[Added]) -> Sum:
        total = empty_sum()
        lengths = [length_of(one.upload, one.per_coordinate) for one in added]
        bound = statistics.median(lengths) if lengths else math.inf
        for block in in_blocks(zip(added, lengths, strict=True)):
            part = empty_sum()
            for (upload, share, divisor, per_coordinate), length in block:
                upload = shortened(upload, bound, length)
                part.add(upload, share=share, divisor=divisor, per_coordinate=per_coordinate)
            total.merge(part)
        return total


def length_of(upload: Upload, per_coordinate: bool) -> float:
    """The norm of all its real numbers; where sums are divided by what was held, of what it says of the whole."""
    if upload.held is None or not per_coordinate:
        return float(norm_of(upload.values))
    return float(norm_of({name: whole(value, upload.held[name]) for name, value in upload.values.items()}))


def shortened(upload: Upload, norm: float, length: float) -> Upload:
    """An upload that is no longer than the norm as it is, else scaled down to it."""
    if length <= norm:
        return upload
    factor = norm / length
    values = {name: value if is_integer(value) else value * factor for name, value in upload.values.items()}
    return Upload(values, upload.held)
