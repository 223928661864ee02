"""Which blocks are kept: never more than the capacity, the forced ones always, the others by worth."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from plures.models import lenet32
from plures.parts.blocks import cut
from plures.parts.gated import knapsack
from plures.parts.selection import Knapsack, worth

ways = pytest.mark.parametrize("way", ["greedy", "exact"])
IMPORTANCE = st.one_of(st.floats(0, 1), st.floats(), st.sampled_from([0.0, 0.5, 1.0, math.nan, math.inf, -math.inf]))
PERCENT = st.integers(1, 99)


def share(percent):
    return torch.tensor(percent / 100, dtype=torch.float64)


def sack(costs, forced=(), groups=None, least=0.1):
    return Knapsack(
        costs=torch.tensor(costs, dtype=torch.float64),
        forced=torch.tensor([block in forced for block in range(len(costs))]),
        groups=torch.tensor(groups or [0] * len(costs)),
        least=least,
    )


@st.composite
def networks(draw):
    """Layers of both groups, in no order and never called."""
    sizes = draw(st.lists(st.tuples(st.booleans(), st.integers(1, 8), st.integers(1, 20)), min_size=1, max_size=4))
    return nn.ModuleList(nn.Linear(a, b) if linear else nn.Conv1d(a, b, 2) for linear, a, b in sizes)


def rooms(wall, percent, least_percent):
    """What each group has left: rounded (s - s_min) of its free blocks, if s of all allows it; in whole numbers.

    Where nothing is forced, all of s is theirs. Halves go up, such as (0.95 - 0.68) * 50 = 13.5, which is a little
    less in floating point.
    """
    blocks = list(zip(wall.costs.int().tolist(), wall.forced.tolist(), wall.groups.tolist(), strict=True))
    total = sum(cost for cost, _, _ in blocks) * percent // 100 - sum(cost for cost, forced, _ in blocks if forced)
    found = []
    for group in range(max(wall.groups) + 1):
        forced = sum(cost for cost, forced, own in blocks if own == group and forced)
        free = sum(cost for cost, forced, own in blocks if own == group and not forced)
        rounded = ((percent - least_percent) * free + 50) // 100
        most = (free + forced) * percent // 100 - forced
        found.append(max(0, min(min(rounded, most) if forced else most, total)))
        total -= found[-1]
    return found


# The capacity is never exceeded


@settings(deadline=None, max_examples=200)
@given(
    networks(),
    st.sampled_from(["first", "equal", "rows"]),
    st.integers(2, 10),
    PERCENT,
    PERCENT,
    st.sampled_from(["greedy", "exact"]),
    st.data(),
)
def test_what_is_kept_is_within_the_capacity_whatever_the_importances(module, rule, splits, percent, least, way, data):
    blocks = cut(module, rule, splits, least / 100)
    wall = knapsack(blocks, least / 100, None)
    forced = wall.costs[wall.forced].sum()
    assume(forced <= percent * wall.costs.sum() / 100)  # else a run is refused, as below
    importance = data.draw(st.lists(IMPORTANCE, min_size=blocks.count, max_size=blocks.count))
    values = worth(torch.tensor([importance, importance[::-1]], dtype=torch.float64), wall.least)
    kept = wall.select(values, share(percent), way)
    assert kept.shape == (2, blocks.count)
    assert kept[:, wall.forced].all()
    used = kept.double() @ wall.costs
    assert (100 * used <= percent * wall.costs.sum()).all()
    free = kept & ~wall.forced
    for group, room in enumerate(rooms(wall, percent, least)):
        here = wall.groups == group
        left = room - (free.double() @ (wall.costs * here))
        assert (left >= 0).all()
        if way == "greedy":  # nothing is left out that would fit
            out = here & ~kept
            assert (torch.where(out, wall.costs, torch.inf) > left[:, None]).all()


@ways
@pytest.mark.parametrize("splits", [2, 5, 10])
@pytest.mark.parametrize("percent", [3, 10, 30, 50, 90, 99])
def test_five_hundred_random_importances_stay_within_the_capacity(percent, splits, way):
    """With s_min = min(max(1 / B, 0.1), s) and the paper's cut, as the method has them by default."""
    least = min(max(1 / splits, 0.1), percent / 100)
    blocks = cut(lenet32(shape=(3, 16, 16), filters=(4, 6), fc=(12, 7)), "first", splits, least)
    wall = knapsack(blocks, least, None)
    draws = torch.Generator().manual_seed(percent)
    count = 500 if way == "greedy" else 60
    kept = wall.select(worth(torch.rand(count, blocks.count, generator=draws), least), share(percent), way)
    assert (100 * (kept.double() @ wall.costs) <= percent * wall.costs.sum()).all()
    assert kept[:, wall.forced].all()


def test_importances_that_are_no_numbers_or_far_off_are_worth_whole_numbers_all_the_same():
    """NaN is worth nothing, which the least share raises to 2; halves go to the even neighbour, 2.5 to 2."""
    far = [math.nan, math.inf, -math.inf, 1e300, -3.0]
    importance = torch.tensor([*far, 0.1, 0.25, 0.35, 0.94, 0.96, 1.0], dtype=torch.float64)
    assert worth(importance, 0.2).tolist() == [2, 10, 2, 10, 2, 2, 2, 4, 9, 10, 10]
    assert worth(importance, 0.01).tolist() == [0, 10, 0, 10, 0, 1, 2, 4, 9, 10, 10]


# Greedy and exact


HAND = sack([10, 20, 20, 15, 10, 25], forced=[0])
IMPORTANCES = torch.tensor([[0.0, 0.91, 0.94, 0.88, 0.31, 0.96]], dtype=torch.float64)
"""Worth 9, 9, 9, 3 and 10. At s = 0.5 the room is min(round(0.4 * 90), 50 - 10) = 36."""


def test_greedy_takes_the_most_worthy_that_fits_by_value_and_not_by_value_over_cost():
    """25 fits and leaves 11; 20, 20 and 15 do not fit, but 10 does: 35 beside the forced 10, worth 13."""
    kept = HAND.select(worth(IMPORTANCES, 0.1), share(50), "greedy")
    assert kept.tolist() == [[True, False, False, False, True, True]]


def test_exact_finds_what_greedy_misses():
    """20 + 15 is 35 as well, worth 18; of two equal blocks of 20 the first is taken."""
    kept = HAND.select(worth(IMPORTANCES, 0.1), share(50), "exact")
    assert kept.tolist() == [[True, True, False, True, False, False]]


def test_exact_takes_the_cheapest_of_equally_worthy_choices():
    """9 for 8, or 5 + 4 for 6; 0.6 of 14 leaves room for 8."""
    values = torch.tensor([[9, 5, 4]])
    assert sack([8, 3, 3], least=0.0).select(values, share(60), "exact").tolist() == [[False, True, True]]


@ways
def test_of_blocks_of_equal_worth_the_first_are_kept(way):
    """0.94 and 0.86 are both worth 9; 2 of 4 fit."""
    values = worth(torch.tensor([[0.86, 0.94, 0.9, 0.94]]), 0.0)
    assert sack([5, 5, 5, 5], least=0.0).select(values, share(50), way).tolist() == [[True, True, False, False]]


@ways
def test_a_share_that_is_a_whole_number_is_not_lost_to_rounding_however_much_blocks_cost(way):
    """0.29 * 1e8 is 28,999,999.999999996 in floating point."""
    large = sack([29_000_000, 71_000_000], least=0.0)
    assert large.select(torch.tensor([[5, 5]]), share(29), way).tolist() == [[True, False]]


@ways
def test_the_room_beside_forced_blocks_is_rounded_and_a_half_goes_up(way):
    """s - s_min of 50 free entries is 13.5, which makes room for 14; 0.95 of 150 would leave 42."""
    walls = sack([100, 14, 36], forced=[0], least=0.68)
    assert walls.select(torch.tensor([[0, 5, 5]]), share(95), way).tolist() == [[True, True, False]]


@ways
def test_each_group_has_a_capacity_of_its_own(way):
    """Half of 20 in both groups, although the second group is worth more."""
    values = torch.tensor([[1, 1, 9, 9]])
    walls = sack([10, 10, 10, 10], groups=[0, 0, 1, 1], least=0.0)
    assert walls.select(values, share(50), way).tolist() == [[True, False, True, False]]


@ways
def test_forced_blocks_that_cost_more_than_the_share_of_their_group_leave_less_to_the_others(way):
    """Half of 60 are 30, of which 19 are forced in the first group, so that 11 are left to the second, not 20."""
    walls = sack([19, 1, 10, 10, 20], forced=[0], groups=[0, 0, 1, 1, 1], least=0.0)
    values = torch.tensor([[0, 9, 5, 5, 9]])
    assert walls.select(values, share(50), way).tolist() == [[True, False, True, False, False]]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10), st.integers(0, 1)), min_size=1, max_size=12),
    st.sets(st.integers(0, 11), max_size=2),
    PERCENT,
)
def test_exact_is_as_good_as_trying_every_choice_and_no_worse_than_greedy(items, forced, percent):
    costs, values, groups = (list(column) for column in zip(*items, strict=True))
    walls, taken = sack(costs, forced, groups, least=0.0), {}
    for way in ("greedy", "exact"):
        kept = walls.select(torch.tensor([values]), share(percent), way)[0].tolist()
        taken[way] = {block for block, keep in enumerate(kept) if keep and block not in forced}
    for group, limit in enumerate(rooms(walls, percent, 0)):
        mine = [b for b in range(len(items)) if groups[b] == group and b not in forced]
        best = max(
            (sum(values[b] for b in chosen), -sum(costs[b] for b in chosen))
            for size in range(len(mine) + 1)
            for chosen in itertools.combinations(mine, size)
            if sum(costs[b] for b in chosen) <= limit
        )
        for chosen in taken.values():
            assert sum(costs[b] for b in chosen & set(mine)) <= limit
        found = taken["exact"] & set(mine)
        assert (sum(values[b] for b in found), -sum(costs[b] for b in found)) == best
        assert best[0] >= sum(values[b] for b in taken["greedy"] & set(mine))


@ways
def test_clients_of_different_capacities_choose_as_each_does_alone(way):
    """Under vmap, as an engine runs many clients at once; of the whole capacity everything is kept."""
    values = worth(torch.rand(4, 3, 6, generator=torch.Generator().manual_seed(1)), 0.1)
    capacities = torch.tensor([0.3, 0.5, 0.8, 1.0], dtype=torch.float64)
    together = torch.vmap(lambda own, capacity: HAND.select(own, capacity, way))(values, capacities)
    alone = [HAND.select(own, capacity, way) for own, capacity in zip(values, capacities, strict=True)]
    assert torch.equal(together, torch.stack(alone))
    assert together[3].all()
    assert not together[2].all(dim=1).any()
