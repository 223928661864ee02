"""THE table: every registered method with the variants that must pass every conformance test, on every engine.

A new method is one `Entry`; a new engine is one line of `ENGINES`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from plures.core.context import Engine
from plures.core.method import Method
from plures.engines.sequential import Sequential
from plures.local import FULL, adam, epochs, exponential, sgd, steps
from plures.methods import METHODS
from plures.server.weights import uniform
from tests.helpers.methods import SIZES, NormedNetwork, Population, TinyNetwork, federation

ENGINES: dict[str, Callable[[], Engine]] = {"sequential": Sequential}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the tests need to know of a method."""

    variants: Mapping[str, Mapping[str, Any]]
    """Options by a short name; no batch of size 1 may come up, for networks with batch statistics have none."""
    still: Mapping[str, Any]
    """Options that set every rate to zero."""
    unkeyed: Mapping[str, Any] = field(default_factory=dict)
    """Options with which no draw depends on a client's number: full batches, a common start."""
    without_rates: tuple[str, ...] = ()
    """Variants that move whatever the rates are."""
    large_clients: tuple[str, ...] = ()
    """Variants for clients that no head separates: on others Newton's steps go far, and roundings with them."""


MINI = epochs(2, batch=3)
"""With clients of 3, 5, 7, 9 and 4 examples, and none left over but for the last batch of 7 and of 4."""
FULL_STEPS = steps(2)
MOMENTUM = sgd(0.1, momentum=0.9, weight_decay=0.01)
NORMED = {"budget": FULL_STEPS, "lr": 0.1}

TABLE: dict[str, Entry] = {
    "local": Entry(
        variants={
            "plain": {"budget": MINI},
            "momentum": {"budget": MINI, "lr": MOMENTUM, "clip_norm": 0.5},
            "stateless": {"budget": MINI, "stateful": False},
            "normed": NORMED,
        },
        still={"lr": 0.0},
        unkeyed={"budget": FULL_STEPS},
    ),
    "fedavg": Entry(
        variants={
            "plain": {"budget": MINI},
            "momentum": {"budget": MINI, "lr": MOMENTUM, "clip_norm": 0.5, "weight": uniform},
            "server adam": {"budget": MINI, "lr": exponential(0.2, 0.5), "server": adam(0.05)},
            "normed, shared": {**NORMED, "buffers": "shared"},
            "normed, personal": {**NORMED, "buffers": "personal"},
            "normed, reset": {**NORMED, "buffers": "reset"},
        },
        still={"lr": 0.0},
        unkeyed={"budget": FULL_STEPS},
    ),
    "finetune": Entry(
        variants={
            "all": {"budget": MINI},
            "head": {"budget": MINI, "personal": "head"},
            "normed, shared": {**NORMED, "buffers": "shared"},
        },
        still={"lr": 0.0},
        unkeyed={"budget": FULL_STEPS},
    ),
    "fedper": Entry(
        variants={
            "plain": {"budget": steps(3), "lr": 0.1},
            "mini-batches": {"budget": MINI, "lr": 0.1},
            "stateless": {"budget": steps(3), "lr": 0.1, "stateful": False, "start": "common"},
            "normed, shared": {**NORMED, "buffers": "shared"},
        },
        still={"lr": 0.0},
        unkeyed={"budget": FULL_STEPS, "start": "common"},
    ),
    "fedsim": Entry(
        variants={
            "head": {"budget": MINI, "personal_lr": 0.2, "personal_l2": 0.1},
            "first layer": {"budget": MINI, "personal": "first_layer", "server": adam(0.05)},
            "clipped": {"budget": MINI, "clip_norm": 0.3, "start": "uniform"},
            "mean-regularised": {"budget": MINI, "mean_regularised": 0.3},
            "stateless": {"budget": MINI, "stateful": False},
            "normed, personal": {**NORMED, "buffers": "personal"},
        },
        still={"lr": 0.0, "personal_lr": 0.0},
        unkeyed={"budget": FULL_STEPS, "start": "common"},
    ),
    "fedalt": Entry(
        variants={
            "head": {"budget": MINI, "personal_budget": epochs(1, batch=4, cap=2), "personal_lr": 0.2},
            "first layer": {"budget": MINI, "personal": "first_layer", "personal_l2": 0.1, "server": adam(0.05)},
            "mean-regularised": {"budget": MINI, "mean_regularised": 0.3},
            "stateless": {"budget": MINI, "stateful": False},
            "normed, reset": {**NORMED, "buffers": "reset"},
        },
        still={"lr": 0.0, "personal_lr": 0.0},
        unkeyed={"budget": FULL_STEPS, "personal_budget": FULL_STEPS, "start": "common"},
    ),
    "pflego": Entry(
        variants={
            "paper": {"tau": 4, "client_lr": 0.1, "server": 0.05},
            "exact": {"tau": 4, "client_lr": 0.1, "server": 0.2, "preset": "exact"},
            "one step": {"tau": 1, "server": 0.2, "preset": "exact"},
            "uncached": {"tau": 4, "client_lr": 0.1, "server": 0.05, "cache_features": False},
            "mini-batches": {"tau": 4, "client_lr": 0.1, "server": 0.2, "preset": "exact", "batch": 3},
            "newton": {"tau": 2, "server": 0.2, "preset": "exact", "solver": "newton"},
            "stateless": {"tau": 4, "client_lr": 0.1, "server": 0.05, "stateful": False, "start": "common"},
            "normed, shared": {"tau": 3, "client_lr": 0.1, "server": 0.2, "preset": "exact", "buffers": "shared"},
        },
        still={"client_lr": 0.0, "server": 0.0},
        unkeyed={"batch": FULL, "start": "common"},
        without_rates=("newton",),
        large_clients=("newton",),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant of one method."""

    method: str
    variant: str

    @property
    def entry(self) -> Entry:
        return TABLE[self.method]

    @property
    def options(self) -> Mapping[str, Any]:
        return self.entry.variants[self.variant]

    def make(self, **others: Any) -> Method:
        return METHODS[self.method].make(**{**self.options, **others})

    @property
    def network(self) -> type[nn.Module]:
        return NormedNetwork if self.variant.startswith("normed") else TinyNetwork

    def population(self, sizes: Sequence[int] = SIZES) -> Population:
        return federation([10 * size for size in sizes] if self.variant in self.entry.large_clients else sizes)

    def __str__(self) -> str:
        return f"{self.method}: {self.variant}"


ROWS = [Row(method=method, variant=variant) for method, entry in TABLE.items() for variant in entry.variants]


def has_option(method: str, option: str) -> bool:
    return option in inspect.signature(METHODS[method].make).parameters
