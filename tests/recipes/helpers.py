"""A data source of 48 examples, and experiments that run on it in a few hundredths of a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plures import RunResult, make_experiment, run_experiment
from plures.core.errors import PluresError
from plures.data import DataSet, from_arrays
from plures.recipes.build import Built, build

CLIENTS, CLASSES, INPUTS = 4, 4, 4
NEED_NORMS = ("fedbn",)
"""Methods that are about normalisation layers, and refuse a network without any."""


def tiny() -> DataSet:
    """Twelve examples of each of four classes, each class around a corner of its own."""
    draws = np.random.default_rng(5)
    labels = np.arange(48) % CLASSES
    inputs = (np.eye(CLASSES)[labels] + 0.4 * draws.normal(size=(48, INPUTS))).astype(np.float32)
    return DataSet(name="tiny", examples=from_arrays(inputs, labels))


def table(method: str = "fedavg", **changes: Any) -> dict[str, Any]:
    """An experiment of two rounds with four clients of two classes each; tables given replace single keys only."""
    found: dict[str, Any] = {
        "method": method,
        "rounds": 2,
        "data": {"source": "tiny", "clients": CLIENTS},
        "model": {"hidden": [5], "batch_norm": method in NEED_NORMS},
    }
    for key, value in changes.items():
        found[key] = {**found.get(key, {}), **value} if isinstance(value, dict) else value
    return found


def built(method: str = "fedavg", **changes: Any) -> Built:
    return build(make_experiment(table(method, **changes)))


def ran(method: str = "fedavg", out: Path | None = None, **changes: Any) -> RunResult:
    return run_experiment(make_experiment(table(method, **changes)), out=out)


def problem_of(method: str = "fedavg", **changes: Any) -> PluresError:
    """What is wrong with an experiment, found by running it."""
    try:
        ran(method, **changes)
    except PluresError as error:
        return error
    raise AssertionError("the experiment ran, although it should not")


class Linear(nn.Module):
    """A network of the tests' own, found in an experiment file by "package.module:function"."""

    def __init__(self, inputs: int, classes: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.head = nn.Linear(inputs, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.scale * inputs.flatten(1))


def asks_for_both(shape: tuple[int, ...], classes: int, scale: float = 1.0) -> nn.Module:
    return Linear(int(np.prod(shape)), classes, scale)


def asks_for_nothing() -> nn.Module:
    return Linear(INPUTS, CLASSES, 1.0)


def no_network() -> str:
    return "not a module"


NOT_CALLABLE = 3


def same_bits(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(
        value.dtype == right[name].dtype and torch.equal(value, right[name]) for name, value in left.items()
    )
