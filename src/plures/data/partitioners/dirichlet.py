"""Label skew by Dirichlet draws, class by class: sizes differ too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plures.core.errors import InvalidData
from plures.data.dealing import Indices, Owners, by_client, each_class, keyed_generator, top_up
from plures.data.partitioners.following import draw_owners, tests_like_training
from plures.data.partitioners.options import problems_of_counts, problems_of_positive, refuse
from plures.data.partitioners.protocols import PURPOSE


@dataclass(frozen=True, kw_only=True)
class Dirichlet:
    """Each class is divided among the clients by a draw from Dirichlet(alpha): the smaller alpha, the more skewed.

    A draw that leaves some client with fewer than `min_examples` is repeated at most `REDRAWS` times; then, in the
    best draw, random examples move from the largest clients to the small ones. So it always ends.
    """

    REDRAWS = 10

    num_clients: int
    alpha: float
    min_examples: int = 5
    """Five examples give three to train, one to validate and one to test."""

    def __post_init__(self) -> None:
        counts = problems_of_counts(num_clients=self.num_clients, min_examples=self.min_examples)
        refuse(counts + problems_of_positive(0.4, alpha=self.alpha))

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        return by_client(self._owners(labels, seed), self.num_clients)

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        """Test examples of a class are drawn in the proportions of its training examples; nobody gets none."""
        owners, remedy = self._owners(labels, seed), "use fewer clients, a higher alpha or a higher min_examples"
        return tests_like_training("dirichlet", owners, labels, test_labels, self.num_clients, seed, remedy)

    def _owners(self, labels: Indices, seed: int) -> Owners:
        self._refuse_too_many_clients(len(labels))
        rng = keyed_generator(seed, PURPOSE, "dirichlet")
        best, fewest = self._draw(labels, rng)
        for _ in range(self.REDRAWS):
            if fewest == 0:
                break
            owners, missing = self._draw(labels, rng)
            if missing < fewest:
                best, fewest = owners, missing
        return top_up(best, self.num_clients, self.min_examples, rng)

    def _draw(self, labels: Indices, rng: np.random.Generator) -> tuple[Owners, int]:
        """Owners, and how many examples small clients lack."""
        owners = np.empty(len(labels), dtype=np.int64)
        for _, members in each_class(labels, rng):
            shares = rng.dirichlet(np.full(self.num_clients, self.alpha))
            owners[members] = draw_owners(len(members), shares, rng)
        sizes = np.bincount(owners, minlength=self.num_clients)
        return owners, int(np.maximum(self.min_examples - sizes, 0).sum())

    def _refuse_too_many_clients(self, num_examples: int) -> None:
        if num_examples < self.num_clients * self.min_examples:
            most = num_examples // self.min_examples
            problem = f"{num_examples} examples cannot give {self.num_clients} clients {self.min_examples} each"
            raise InvalidData(f"{problem}: use at most {most} clients, or a smaller min_examples.")


def dirichlet(num_clients: int, alpha: float = 0.4, min_examples: int = 5) -> Dirichlet:
    """Clients differ in size and in their proportions of classes."""
    return Dirichlet(num_clients=num_clients, alpha=alpha, min_examples=min_examples)
