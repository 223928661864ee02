"""What is made of all uploads of a round: the middle of each coordinate, or the uploads nearest to their neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from plures.core.errors import TooFewClients
from plures.core.refusing import whole
from plures.core.sums import accumulate, held_of, is_integer
from plures.core.types import Params
from plures.core.visit import Upload
from plures.server.robust_sums import Added

__all__ = ["MEDIAN", "Krum", "Middles", "Trimmed"]

MEDIAN = 0.5
"""To leave out such a share of the values at each end leaves the one or two in the middle."""
COLUMNS = 2**12
"""Coordinates that are looked at together: no second copy of all uploads is made, and they stay in the cache."""
ROUND_OFF = 1e-9
"""What is a whole number but for roundings is not rounded up."""


# Coordinate by coordinate


@dataclass(frozen=True, kw_only=True)
class Trimmed:
    """The mean of each coordinate without a share of its values at each end."""

    share: float

    def __call__(self, added: Sequence[Added]) -> Middles:
        return middles_of([one.upload for one in added], added, self.share)


@dataclass(frozen=True, kw_only=True)
class Middles:
    """Of each coordinate, the middle of what was uploaded by those who held it, in the place of a weighted mean."""

    uploads: Sequence[Upload]
    """Those that count, each as much as another."""
    cut_share: float
    shares: float
    """Of all uploads together; with the divisor, how far the method goes in all."""
    divisor: float
    per_coordinate: bool

    @cached_property
    def held(self) -> Params:
        """By coordinate, how many held it; of uploads that held everything, nothing."""
        total: Params = {}
        if any(upload.held is not None for upload in self.uploads):
            for upload in self.uploads:
                accumulate(total, {name: held_of(upload, name) for name in upload.values}, 1.0)
        return total

    def direction(self, *, divided: bool) -> Params:
        length = self.shares / self.divisor if divided and self.divisor else self.shares
        names = dict.fromkeys(name for upload in self.uploads for name in upload.values)
        return {name: self._direction_of(name, length) for name in names}

    def _direction_of(self, name: str, length: float) -> Tensor:
        """A plain mean takes for zeros what clients did not hold; by the share of those who did, so does this one."""
        having = [upload for upload in self.uploads if name in upload.values]
        parts = [middle(values, held, self.cut_share) for values, held in columns(having, name)]
        found = torch.cat(parts).reshape(having[0].values[name].shape)
        if self.per_coordinate:
            return found
        if name in self.held:
            return found * (self.held[name] * (length / len(self.uploads)))
        return found * (length * len(having) / len(self.uploads))


def middles_of(uploads: Sequence[Upload], added: Sequence[Added], cut_share: float) -> Middles:
    return Middles(
        uploads=uploads,
        cut_share=cut_share,
        shares=math.fsum(one.share for one in added),
        divisor=math.fsum(one.divisor for one in added),
        per_coordinate=any(one.per_coordinate for one in added),
    )


def columns(uploads: Sequence[Upload], name: str) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Values of some coordinates at a time, a row for each upload, and what was held of them if anybody says."""
    values = [upload.values[name].reshape(-1) for upload in uploads]
    held = [None if upload.held is None else upload.held[name].reshape(-1) for upload in uploads]
    for start in range(0, max(1, len(values[0])), COLUMNS):
        some = slice(start, start + COLUMNS)
        rows = as_real(torch.stack([row[some] for row in values]))
        if all(row is None for row in held):
            yield rows, None
        else:
            yield rows, torch.stack([torch.ones_like(rows[0]) if h is None else h[some].to(rows) for h in held])


def as_real(value: Tensor) -> Tensor:
    return value.to(torch.get_default_dtype()) if is_integer(value) else value


def middle(values: Tensor, held: Tensor | None, cut_share: float) -> Tensor:
    """The trimmed mean of each column over the rows that held it; 0 where none did."""
    count = len(values)
    if held is None:
        cut = num_cut(count, cut_share)
        return in_order(values)[cut : count - cut].mean(dim=0)
    there = held > 0
    # What is not held goes to the end of the order, beyond what is looked at.
    ordered = in_order(torch.where(there, values / held, math.inf))
    holders = there.sum(dim=0)
    cuts = torch.tensor([num_cut(number, cut_share) for number in range(count + 1)], device=values.device)[holders]
    places = torch.arange(count, device=values.device).unsqueeze(1)
    kept = (places >= cuts) & (places < holders - cuts)
    return torch.where(kept, ordered, 0.0).sum(dim=0) / kept.sum(dim=0).clamp_min(1)


def in_order(rows: Tensor) -> Tensor:
    """The rows, with each column sorted; in place, where that is faster."""
    if rows.device.type != "cpu" or rows.dtype not in (torch.float32, torch.float64):
        return rows.sort(dim=0).values
    rows.numpy().sort(axis=0)  # torch would take several times as long, for it sorts indices along
    return rows


def num_cut(count: int, share: float) -> int:
    """Values left out at each end: that share of them, rounded up; but one stays, or two."""
    return max(0, min(rounded_up(share * count), (count - 1) // 2))


def rounded_up(number: float) -> int:
    return math.ceil(number - ROUND_OFF)


# Upload by upload


@dataclass(frozen=True, kw_only=True)
class Krum:
    """The mean of the uploads that are nearest to their neighbours (Blanchard et al. 2017)."""

    attackers: int | float
    """As many, or such a share of the uploads, may be hostile."""
    keep: int

    def __call__(self, added: Sequence[Added]) -> Middles:
        uploads = [one.upload for one in added]
        problem = self.too_few(len(uploads))
        if problem is not None:
            raise TooFewClients(problem)
        chosen = self.chosen(squared_distances(uploads))
        return middles_of([uploads[place] for place in chosen], added, 0.0)

    def num_hostile(self, num_uploads: int) -> int:
        return self.attackers if isinstance(self.attackers, int) else rounded_up(self.attackers * num_uploads)

    def too_few(self, num_uploads: int) -> str | None:
        """Why Krum cannot choose among so many uploads; None if it can."""
        hostile = self.num_hostile(num_uploads)
        if num_uploads >= 2 * hostile + 3:
            return None
        return (
            f"Krum tells {hostile} hostile uploads from {hostile + 3} others or more, but a round has {num_uploads} in "
            f"all. Call a larger cohort, lower attackers = {self.attackers}, or use the rule 'median'."
        )

    def chosen(self, distances: Tensor) -> list[int]:
        """Places of the uploads with the lowest scores, in order; of equal ones the first, and at most all but f."""
        count = len(distances)
        rest = count - self.num_hostile(count)
        nearest = distances.sort(dim=1).values[:, 1 : rest - 1]  # the first is the upload itself
        scores = nearest.sum(dim=1).tolist()
        return sorted(sorted(range(count), key=scores.__getitem__)[: min(self.keep, rest)])


def squared_distances(uploads: Sequence[Upload]) -> Tensor:
    """Of every two uploads, over all real numbers, in double precision; what is not held counts as 0."""
    first, second = torch.triu_indices(len(uploads), len(uploads), offset=1)
    total = torch.zeros(len(first), dtype=torch.float64)
    for name in dict.fromkeys(name for upload in uploads for name in upload.values):
        like = next(upload.values[name] for upload in uploads if name in upload.values)
        if is_integer(like):
            continue
        for start in range(0, like.numel(), COLUMNS):
            some = slice(start, min(start + COLUMNS, like.numel()))
            rows = torch.stack([sent(upload, name, some, like) for upload in uploads])
            total += F.pdist(rows).square().cpu()
    square = torch.zeros(len(uploads), len(uploads), dtype=torch.float64)
    square[first, second] = square[second, first] = total
    return square


def sent(upload: Upload, name: str, some: slice, like: Tensor) -> Tensor:
    """Some values of an upload; what is held in part was sent in part."""
    if name not in upload.values:
        return torch.zeros(some.stop - some.start, dtype=torch.float64, device=like.device)
    value = upload.values[name].reshape(-1)[some].double()
    return whole(value, None if upload.held is None else upload.held[name].reshape(-1)[some])
