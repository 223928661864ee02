"""Rules that do not look at labels: equal shares, and shares of very different sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plures.core.errors import InvalidData
from plures.data.dealing import Indices, apportion, by_client, keyed_generator, refuse_empty_clients
from plures.data.partitioners.options import problems_of_counts, problems_of_ranges, refuse
from plures.data.partitioners.protocols import PURPOSE

MOST_SIGMA = 10.0
"""Beyond it one client has all but everything."""


@dataclass(frozen=True, kw_only=True)
class Iid:
    """Every client gets a uniform draw; sizes differ by at most one."""

    num_clients: int

    def __post_init__(self) -> None:
        refuse(problems_of_counts(num_clients=self.num_clients))

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        return self._deal(len(labels), keyed_generator(seed, PURPOSE, "iid", "train"))

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        return self._deal(len(test_labels), keyed_generator(seed, PURPOSE, "iid", "test"))

    def _deal(self, num_examples: int, rng: np.random.Generator) -> list[Indices]:
        owners = rng.permutation(np.arange(num_examples) % self.num_clients)
        refuse_empty_clients(owners, self.num_clients, f"use at most {num_examples} clients")
        return by_client(owners, self.num_clients)


@dataclass(frozen=True, kw_only=True)
class ByQuantity:
    """Sizes are `min_examples` and a share of the rest, shares by a log-normal draw; labels are as in the whole."""

    num_clients: int
    sigma: float
    """The standard deviation of a share's logarithm; 0: equal sizes."""
    min_examples: int

    def __post_init__(self) -> None:
        counts = problems_of_counts(num_clients=self.num_clients, min_examples=self.min_examples)
        refuse(counts + problems_of_ranges(MOST_SIGMA, sigma=self.sigma))

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        return self._deal(len(labels), self.min_examples, seed, "train")

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        """By the same shares."""
        return self._deal(len(test_labels), 1, seed, "test")

    def _deal(self, num_examples: int, least: int, seed: int, what: str) -> list[Indices]:
        spare = num_examples - self.num_clients * least
        if spare < 0:
            problem = f"{num_examples} {what} examples cannot give {self.num_clients} clients {least} each"
            raise InvalidData(f"{problem}: use at most {num_examples // least} clients, or a smaller min_examples.")
        draws = keyed_generator(seed, PURPOSE, "by_quantity", "sizes").standard_normal(self.num_clients)
        sizes = least + apportion(spare, np.exp(self.sigma * draws))
        owners = np.repeat(np.arange(self.num_clients), sizes)
        return by_client(keyed_generator(seed, PURPOSE, "by_quantity", what).permutation(owners), self.num_clients)


def iid(num_clients: int) -> Iid:
    """Every client gets a uniform draw of all examples."""
    return Iid(num_clients=num_clients)


def by_quantity(num_clients: int, sigma: float = 1.0, min_examples: int = 5) -> ByQuantity:
    """Clients differ in size only, by log-normal draws of spread `sigma`; none has fewer than `min_examples`."""
    return ByQuantity(num_clients=num_clients, sigma=sigma, min_examples=min_examples)
