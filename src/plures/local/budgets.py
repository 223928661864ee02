"""How long a phase lasts, and on which examples: epochs or steps, of mini-batches or of everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

import torch
from torch import Tensor

from plures.core.errors import InvalidConfig
from plures.core.rates import check_count

__all__ = ["FULL", "BatchSize", "Epochs", "Half", "Steps", "epochs", "query", "steps", "support"]

FULL: Final = "full"
"""As a batch size: every batch is all examples of the client."""

BatchSize = int | Literal["full"]


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """Each epoch visits every example once, in an order of its own; the last batch may be smaller."""

    count: int
    batch: BatchSize = 32
    cap: int | None = None
    """Most updates in all, however many examples a client has."""
    stream: str = ""

    def __post_init__(self) -> None:
        check_count("the number of epochs", self.count)
        _check_batch(self.batch)
        if self.cap is not None:
            check_count("cap of epochs", self.cap)

    def num_updates(self, num_examples: int) -> int:
        wanted = self.count * _batches_per_epoch(num_examples, self.batch)
        return wanted if self.cap is None else min(wanted, self.cap)

    def batches(self, num_examples: int, generator: torch.Generator) -> Iterator[Tensor | None]:
        return islice(_endless(num_examples, self.batch, generator), self.num_updates(num_examples))


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A number of updates, going through as many shuffled epochs as that takes."""

    count: int
    batch: BatchSize = FULL
    stream: str = ""

    def __post_init__(self) -> None:
        check_count("the number of steps", self.count)
        _check_batch(self.batch)

    def num_updates(self, num_examples: int) -> int:
        return self.count if num_examples else 0

    def batches(self, num_examples: int, generator: torch.Generator) -> Iterator[Tensor | None]:
        return islice(_endless(num_examples, self.batch, generator), self.num_updates(num_examples))


@dataclass(frozen=True, kw_only=True)
class Half:
    """A budget on every other example only: the support half or the query half of a client's data."""

    budget: Epochs | Steps
    query: bool

    @property
    def stream(self) -> str:
        return self.budget.stream

    def num_updates(self, num_examples: int) -> int:
        return self.budget.num_updates(len(self._places(num_examples)))

    def batches(self, num_examples: int, generator: torch.Generator) -> Iterator[Tensor | None]:
        places = torch.tensor(self._places(num_examples))
        for indices in self.budget.batches(len(places), generator):
            yield places if indices is None else places[indices]

    def _places(self, num_examples: int) -> range:
        return range(1 if self.query else 0, num_examples, 2)


def epochs(count: int, batch: BatchSize = 32, cap: int | None = None, stream: str = "") -> Epochs:
    """Some passes over the client's examples, at most `cap` updates."""
    return Epochs(count=count, batch=batch, cap=cap, stream=stream)


def steps(count: int, batch: BatchSize = FULL, stream: str = "") -> Steps:
    """Some updates, on all examples unless a batch size is given."""
    return Steps(count=count, batch=batch, stream=stream)


def support(budget: Epochs | Steps) -> Half:
    """The budget on the examples 0, 2, 4, ...: what a client reconstructs its own part from."""
    return Half(budget=budget, query=False)


def query(budget: Epochs | Steps) -> Half:
    """The budget on the examples 1, 3, 5, ...: what the shared part is then trained on."""
    return Half(budget=budget, query=True)


def _check_batch(batch: BatchSize) -> None:
    if isinstance(batch, str):
        if batch != FULL:
            raise InvalidConfig(f"a batch size must be a whole number or '{FULL}', not {batch!r}.")
    else:
        check_count("a batch size", batch, least=1)


def _batches_per_epoch(num_examples: int, batch: BatchSize) -> int:
    if isinstance(batch, str):
        return min(1, num_examples)
    return -(-num_examples // batch)


def _endless(num_examples: int, batch: BatchSize, generator: torch.Generator) -> Iterator[Tensor | None]:
    """Batches of one shuffled epoch after another; one that holds all examples needs no order."""
    while True:
        if isinstance(batch, str) or batch >= num_examples:
            yield None
        else:
            yield from torch.split(torch.randperm(num_examples, generator=generator), batch)
