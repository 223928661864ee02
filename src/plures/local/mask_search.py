"""How a client of FedSpa finds its next masks: prune what is small, regrow where the dense gradient is large."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plures.core.client import REFRESH
from plures.core.errors import ClientFailed, InvalidConfig
from plures.core.gather import diverged
from plures.core.method import own_parameters
from plures.core.problem import Problem
from plures.core.rates import check_rate
from plures.core.seeds import generator
from plures.core.types import Params, Schedule
from plures.core.visit import Visit
from plures.local.masks import mask_of, masks_in

__all__ = [
    "Annealed",
    "MaskRefresh",
    "MaskSearch",
    "grow_at_random",
    "grow_by_gradient",
    "keep_masks",
    "prune_and_grow",
    "search_named",
]

MaskSearch = Callable[[Problem, Params, Params, float], Params]
"""(problem, trained weights, their masks, rate) -> the next masks, none with more ones than before."""

Grow = Callable[[Problem, Params], Params]
"""(problem, trained weights) -> how much each coordinate is worth, for the choice of new ones; {}: the masks stay."""

ROUND_OFF = 1e-12
"""Relative error that a rate times a count may have: 0.07 * 100 is 7.000000000000001, and no 8 weights are meant."""


def keep_masks(problem: Problem, weights: Params, masks: Params, rate: float) -> Params:
    """No search: the masks stay for good (RSM)."""
    return masks


@dataclass(frozen=True, kw_only=True)
class PruneAndGrow:
    """Of each tensor, drop the ceil(rate * ones) smallest active weights, then take as many of the best inactive."""

    grow: Grow

    def __call__(self, problem: Problem, weights: Params, masks: Params, rate: float) -> Params:
        worth = self.grow(problem, weights) if rate else {}
        return masks | {name: moved_mask(weights[name], value, masks[name], rate) for name, value in worth.items()}


def prune_and_grow(grow: Grow) -> MaskSearch:
    """FedSpa's search (DST); `grow` says what an inactive coordinate is worth."""
    return PruneAndGrow(grow=grow)


def grow_by_gradient(problem: Problem, weights: Params) -> Params:
    """The size of the dense gradient on the first batch at the sparse weights, in evaluation mode; {} of no batch."""
    batch = next(problem.batches(), None)
    if batch is None:
        return {}
    dense = Problem(**vars(problem) | {"phase": replace(problem.phase, view=own_parameters, penalty=None)})
    problem.binding.task.train(False)
    grads, _ = dense.gradients(problem.params | weights, batch, list(weights))
    return {name: grad.abs() for name, grad in grads.items()}


def grow_at_random(problem: Problem, weights: Params) -> Params:
    """Every inactive coordinate is worth as much as another: the ablation without gradients."""
    visit = problem.visit
    draws = generator(visit.seed, "grow", visit.round, visit.client)
    return {name: torch.rand(value.shape, generator=draws).to(value.device) for name, value in weights.items()}


def moved_mask(weight: Tensor, worth: Tensor, mask: Tensor, rate: float) -> Tensor:
    """What was just pruned may come back at once; a worth that is no number is none, so that ones stay as many."""
    ones = int(mask.sum())
    count = min(math.ceil(rate * ones * (1 - ROUND_OFF)), ones)
    if count == 0 or bool(mask.all()):  # a dense tensor comes back whole
        return mask
    left = mask & ~smallest(torch.where(mask, weight.abs(), math.inf), count)
    return left | smallest(torch.where(left, math.inf, -worth.nan_to_num()), count)


def smallest(values: Tensor, count: int) -> Tensor:
    """A mask of the `count` smallest values; of equal ones, the first."""
    flat = values.flatten()
    bound = flat.kthvalue(count).values
    below, equal = flat < bound, flat == bound
    chosen = below | (equal & (equal.cumsum(0) <= count - below.sum()))
    return chosen.reshape(values.shape)


@dataclass(frozen=True, kw_only=True)
class Annealed:
    """Half a cosine wave from `start` in round 1 to 0 in the last round of the run; constant where that is unknown."""

    start: float

    def rate(self, visit: Visit) -> float:
        if visit.rounds is None or visit.rounds < 2:
            return self.start
        return self.start / 2 * (1 + math.cos(math.pi * (visit.round - 1) / (visit.rounds - 1)))


@dataclass(frozen=True, kw_only=True)
class MaskRefresh:
    """After the phases, give the client its next masks."""

    search: MaskSearch
    rate: Schedule | Annealed

    def __post_init__(self) -> None:
        if not isinstance(self.rate, Annealed):
            check_share(self.rate(1), round=1)

    def __call__(self, problem: Problem, params: Params) -> Params:
        visit, masks = problem.visit, masks_in(params)
        rate = self.rate.rate(visit) if isinstance(self.rate, Annealed) else self.rate(visit.round)
        check_weights(problem, params, list(masks))
        weights, own = {name: params[name] for name in masks}, {name: mask.clone() for name, mask in masks.items()}
        found = self.search(problem, weights, own, check_share(rate, round=visit.round))
        check_masks(visit, masks, found)
        return params | {mask_of(name): mask for name, mask in found.items()}


def check_weights(problem: Problem, params: Params, names: list[str]) -> None:
    """Nothing is chosen by numbers that are none."""
    if not all(bool(params[name].isfinite().all()) for name in names):
        raise diverged("The trained parameters are not finite numbers", problem.phase.name, problem.visit)


GROW: dict[str, Grow] = {"gradient": grow_by_gradient, "random": grow_at_random}


def search_named(search: str | MaskSearch, regrow: str) -> MaskSearch:
    """The search of that name, or one of the user's own as it is."""
    if isinstance(search, str):
        return keep_masks if search == "rsm" else prune_and_grow(GROW[regrow])
    if not callable(search):
        raise InvalidConfig(f"search is {search!r}: give 'dst', 'rsm', or a function that finds the next masks.")
    return search


def check_share(rate: float, *, round: int) -> float:
    if check_rate(f"prune_rate in round {round}", rate) > 1:
        raise InvalidConfig(
            f"prune_rate in round {round} is the share of weights that are dropped, at most 1, not {rate!r}."
        )
    return rate


def check_masks(visit: Visit, before: Params, after: Params) -> None:
    """A search of the user's own keeps names and shapes, and adds no ones: a client's capacity is a promise."""
    if before.keys() != after.keys():
        raise wrong(f"The mask search gives masks of {sorted(after)}, but it was given {sorted(before)}", visit)
    for name, mask in after.items():
        ones, were = int(mask.sum()), int(before[name].sum())
        if mask.dtype != torch.bool or mask.shape != before[name].shape:
            given = f"{mask.dtype} of shape {tuple(mask.shape)}, not as bool of shape {tuple(before[name].shape)}"
            raise wrong(f"The mask search gives '{name}' as {given}", visit)
        if ones > were:
            raise wrong(f"The mask search gives '{name}' {ones} ones, but it had {were}", visit)


def wrong(what: str, visit: Visit) -> ClientFailed:
    remedy = "Correct the search: it gives every mask anew, as bool, in its shape and with no more ones than before."
    return ClientFailed(what, client=visit.name or str(visit.client), round=visit.round, phase=REFRESH, remedy=remedy)
