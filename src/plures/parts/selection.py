"""Which blocks a client keeps under its capacity: a knapsack, filled greedily or exactly.

The choice is an operator of its own, so that gradients by transformation and maps over clients take it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

LEVELS = 10
"""Importances are rounded to tenths, so that blocks are worth whole numbers."""

SelectionName = Literal["greedy", "exact"]
Rooms = np.ndarray
"""What each group has left beside its forced blocks."""


@dataclass(frozen=True, kw_only=True)
class Knapsack:
    """Blocks with their costs, and how much of each group may be kept."""

    costs: Tensor
    """Of each block."""
    forced: Tensor
    """True for blocks that are always kept."""
    groups: Tensor
    """Which capacity a block draws on."""
    least: float
    """The share of each parameter that the forced blocks may have."""

    def rooms(self, capacity: float) -> Rooms:
        """What each group has left beside its forced blocks; with the whole capacity, all of it."""
        costs, forced, groups = (value.numpy() for value in (self.costs, self.forced, self.groups))
        return room(capacity, costs, forced, groups, self.least if capacity < 1 else 0.0)

    def select(self, values: Tensor, capacity: Tensor, how: SelectionName) -> Tensor:
        """For each row of values, which blocks are kept; of the whole capacity, all."""
        kept: Tensor = keep_blocks(values, capacity, self.costs, self.forced, self.groups, self.least, how == "exact")
        return kept


def worth(importance: Tensor, least: float) -> Tensor:
    """Whole numbers from 0 to 10; an importance that is no number has none, and the loss will tell."""
    return torch.round(LEVELS * importance.nan_to_num(nan=0.0).clamp(min=least, max=1.0)).to(torch.int64)


@torch.library.custom_op("plures::keep_blocks", mutates_args=())
def keep_blocks(
    values: Tensor, capacity: Tensor, costs: Tensor, forced: Tensor, groups: Tensor, least: float, exactly: bool
) -> Tensor:
    """(examples, blocks) of whole numbers -> which are kept."""
    worths, price, always, group = (value.cpu().numpy() for value in (values, costs, forced, groups))
    share = float(capacity)
    if share >= 1:
        return torch.ones_like(values, dtype=torch.bool)
    rooms = room(share, price, always, group, least)
    kept = (exact if exactly else greedy)(worths, price, always, group, rooms)
    return torch.from_numpy(kept).to(values.device)


@keep_blocks.register_fake
def _(values: Tensor, *others: Any) -> Tensor:
    return torch.empty_like(values, dtype=torch.bool)


@keep_blocks.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Tensor, int]:
    rows = [
        keep_blocks(*(v if dim is None else v.select(dim, n) for v, dim in zip(given, in_dims, strict=True)))
        for n in range(info.batch_size)
    ]
    return torch.stack(rows), 0


def room(share: float, costs: np.ndarray, forced: np.ndarray, groups: np.ndarray, least: float) -> Rooms:
    """What each group has left beside its forced blocks; all it keeps is at most `share` of its cost.

    Where forced blocks have more of a group than that, the others have less.
    """
    rooms = []
    left = whole_share(share, costs.sum()) - costs[forced].sum()
    for group in range(int(groups.max()) + 1):
        mine = groups == group
        fixed, free = costs[mine & forced].sum(), costs[mine & ~forced].sum()
        rounded = np.floor((share - least) * free + 0.5 + 1e-9)  # 0.95 - 0.68 is a little less than 0.27
        most = whole_share(share, fixed + free) - fixed
        # Where nothing is forced, the share that forced blocks would have had is for the others.
        rooms.append(max(0.0, min(most if fixed == 0 else min(rounded, most), left)))
        left -= rooms[-1]
    return np.array(rooms)


def whole_share(share: float, cost: float) -> float:
    """A share of a cost, rounded down; 0.29 of 100 is 29, although the product is a little less."""
    return float(np.floor(share * cost * (1 + 1e-12)))


def greedy(values: np.ndarray, costs: np.ndarray, forced: np.ndarray, groups: np.ndarray, rooms: Rooms) -> np.ndarray:
    """For each row of values, take blocks from the most worthy on, as long as they fit; of equal ones, the first."""
    free = np.flatnonzero(~forced)
    order = free[np.argsort(-values[:, free], axis=1, kind="stable")]
    kept = np.tile(forced, (len(values), 1))
    left, row = np.tile(rooms, (len(values), 1)), np.arange(len(values))
    for block in order.T:
        fits = left[row, groups[block]] >= costs[block]
        left[row, groups[block]] -= costs[block] * fits
        kept[row, block] = fits
    return kept


def exact(values: np.ndarray, costs: np.ndarray, forced: np.ndarray, groups: np.ndarray, rooms: Rooms) -> np.ndarray:
    """For each row of values, the best choice that fits: dynamic programming over the sum of values."""
    distinct, where = np.unique(values, axis=0, return_inverse=True)
    kept = np.tile(forced, (len(distinct), 1))
    for row, worths in enumerate(distinct):
        for group, left in enumerate(rooms):
            items = np.flatnonzero((groups == group) & ~forced)
            kept[row, items[best_items(worths[items], costs[items], left)]] = True
    return kept[where.reshape(-1)]


def best_items(worths: np.ndarray, costs: np.ndarray, room: float) -> list[int]:
    """Of items with whole worths, those of the largest sum that cost at most `room`; the cheapest such choice."""
    total = int(worths.sum())
    cheapest = np.full(total + 1, np.inf)
    cheapest[0] = 0.0
    taken = np.zeros((len(worths), total + 1), dtype=bool)
    for item, (worth_of, cost) in enumerate(zip(worths.tolist(), costs.tolist(), strict=True)):
        with_item = np.full(total + 1, np.inf)
        with_item[worth_of:] = cheapest[: total + 1 - worth_of] + cost
        taken[item] = with_item < cheapest
        cheapest = np.where(taken[item], with_item, cheapest)
    left = int(np.flatnonzero(cheapest <= room)[-1])
    chosen = []
    for item in reversed(range(len(worths))):
        if taken[item, left]:
            chosen.append(item)
            left -= int(worths[item])
    return chosen
