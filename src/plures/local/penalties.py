"""Terms added to the loss that hold parameters near others: near what was received, or near the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from plures.core.method import Penalty
from plures.core.rates import check_rate
from plures.core.types import Params
from plures.core.visit import Visit
from plures.local.views import twin_of

__all__ = ["Proximal", "PullToInitial", "Sum", "TwinDistance", "add", "proximal", "pull_to_initial", "twin_distance"]


def same_name(name: str) -> str:
    """A received parameter holds the one of the same name."""
    return name


@dataclass(frozen=True, kw_only=True)
class Proximal:
    """strength / 2 (or strength) times the squared distance to what the client received."""

    strength: float
    half: bool = True
    of: Callable[[str], str] = same_name
    """From a received name to the parameter it holds: `twin_of` holds the twin."""

    def __post_init__(self) -> None:
        check_rate("strength of a proximal penalty", self.strength)

    def __call__(self, params: Params, visit: Visit) -> Tensor:
        anchors = {self.of(name): value for name, value in visit.received.items()}
        return (self.strength / 2 if self.half else self.strength) * _squared_distance(params, anchors, visit)


@dataclass(frozen=True, kw_only=True)
class PullToInitial:
    """strength times the squared distance to what the client kept before its first visit."""

    strength: float

    def __post_init__(self) -> None:
        check_rate("strength of a pull to the initial values", self.strength)

    def __call__(self, params: Params, visit: Visit) -> Tensor:
        return self.strength * _squared_distance(params, visit.initial, visit)


@dataclass(frozen=True, kw_only=True)
class TwinDistance:
    """strength / 2 times the squared distance between each twin and its original, both as they are now."""

    strength: float

    def __post_init__(self) -> None:
        check_rate("strength of the pull between twin and original", self.strength)

    def __call__(self, params: Params, visit: Visit) -> Tensor:
        twins = {name: params[twin_of(name)] for name in params if twin_of(name) in params}
        return self.strength / 2 * _squared_distance(params, twins, visit)


@dataclass(frozen=True, kw_only=True)
class Sum:
    """Several penalties at once."""

    penalties: tuple[Penalty, ...]

    def __call__(self, params: Params, visit: Visit) -> Tensor:
        return _total([penalty(params, visit) for penalty in self.penalties])


def proximal(strength: float, half: bool = True, *, of: Callable[[str], str] = same_name) -> Penalty:
    """strength / 2 * |w - received|^2, without the half if so asked."""
    return Proximal(strength=strength, half=half, of=of)


def pull_to_initial(strength: float) -> Penalty:
    """strength * |v - v_initial|^2 over what stays on the client."""
    return PullToInitial(strength=strength)


def twin_distance(strength: float) -> Penalty:
    """strength / 2 * |v - u|^2 between a personal twin v and the shared original u: it pulls both."""
    return TwinDistance(strength=strength)


def add(*penalties: Penalty) -> Penalty:
    """The sum of some penalties."""
    return Sum(penalties=penalties)


def _squared_distance(params: Params, anchors: Params, visit: Visit) -> Tensor:
    """Over what is trained: running statistics are no parameters."""
    return _total(
        [
            (params[name] - anchor).square().sum()
            for name, anchor in anchors.items()
            if name in params and name not in visit.statistics and anchor.is_floating_point()
        ]
    )


def _total(terms: list[Tensor]) -> Tensor:
    return reduce(torch.add, terms) if terms else torch.zeros(())
