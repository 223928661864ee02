"""Types that several methods use for their options; the words in brackets tell a file reader how to read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from plures.core.method import (
    Budget,
    Extend,
    Optimizer,
    Penalty,
    Start,
    View,
    Weight,
    common_start,
    nothing_added,
    own_parameters,
)
from plures.core.types import Schedule
from plures.local import add, epochs, pull_to_initial, twin, twin_distance, uniform_start, with_twin
from plures.parts import BufferPolicy, NamedSplit, Selector, all_shared, split

Rule = Annotated[float | Schedule | Optimizer, "rule"]
"""A rate or a schedule of rates for plain SGD, or an optimiser."""
Rate = Annotated[float | Schedule, "rule"]
"""A rate or a schedule of rates."""
Duration = Annotated[Budget, "budget"]
WeightOption = Annotated[Weight, "weight"]
Selection = Annotated[Selector | str | Sequence[str], "selector"]
StartName = Literal["common", "uniform"]

STARTS: dict[StartName, Start] = {"common": common_start, "uniform": uniform_start}
ONE_EPOCH: Budget = epochs(1, batch=32)
FIVE_EPOCHS: Budget = epochs(5, batch=32)


class Objective(NamedTuple):
    """What FedSim and FedAlt minimise: whose parameters are whose, what the network sees, what is added."""

    split: NamedSplit
    extend: Extend
    view: View
    penalty: Penalty | None


def partial_objective(personal: Selection, *, personal_l2: float, buffers: BufferPolicy | None) -> Objective:
    """F_i(u, v_i) + personal_l2 |v_i - v_i(0)|^2: part of the network is personal."""
    penalty = pull_to_initial(personal_l2) if personal_l2 else None
    return Objective(split(personal, buffers=buffers), nothing_added, own_parameters, penalty)


def mean_regularised_objective(strength: float, *, personal_l2: float, buffers: BufferPolicy | None) -> Objective:
    """F_i(v_i) + strength / 2 |v_i - u|^2: a whole personal twin v_i beside the shared reference model u."""
    penalty = twin_distance(strength)
    if personal_l2:
        penalty = add(penalty, pull_to_initial(personal_l2))
    return Objective(split(all_shared(), buffers=buffers), with_twin, twin, penalty)
