"""Label skew by Dirichlet draws, client by client: all have the same size (Hsu et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plures.data.dealing import Indices, Owners, by_client, each_class, keyed_generator, refuse_empty_clients
from plures.data.partitioners.following import tests_like_training
from plures.data.partitioners.options import problems_of_counts, problems_of_positive, refuse
from plures.data.partitioners.protocols import PURPOSE

Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class DirichletByClient:
    """Each client has label proportions from Dirichlet(gamma), and N/n examples drawn by them without replacement.

    A label that is used up is drawn again from the client's other labels in their proportions, and from whatever is
    left where the client has none of those. Every turn uses up a label or is the last one, so it always ends. Where
    clients ask for more of a label than there is, chance says who gets it, not their number.
    """

    num_clients: int
    gamma: float

    def __post_init__(self) -> None:
        refuse(problems_of_counts(num_clients=self.num_clients) + problems_of_positive(0.3, gamma=self.gamma))

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        return by_client(self._owners(labels, seed), self.num_clients)

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        """Test examples of a class go to its owners, in proportion to what they have of it."""
        owners, remedy = self._owners(labels, seed), "use fewer clients"
        return tests_like_training("dirichlet_by_client", owners, labels, test_labels, self.num_clients, seed, remedy)

    def _owners(self, labels: Indices, seed: int) -> Owners:
        rng = keyed_generator(seed, PURPOSE, "dirichlet_by_client")
        members = [positions for _, positions in each_class(labels, rng)]
        counts = self._counts(np.array([len(positions) for positions in members]), rng)
        owners = np.empty(len(labels), dtype=np.int64)
        for rank, positions in enumerate(members):
            owners[positions] = np.repeat(np.arange(self.num_clients), counts[:, rank])
        refuse_empty_clients(owners, self.num_clients, f"use at most {len(labels)} clients")
        return owners

    def _counts(self, left: Counts, rng: np.random.Generator) -> Counts:
        """How many examples of each label every client gets; `left` are those of each label."""
        priors = rng.dirichlet(np.full(len(left), self.gamma), size=self.num_clients)
        wanted = np.full(self.num_clients, left.sum() // self.num_clients)
        wanted[: left.sum() % self.num_clients] += 1
        counts = np.zeros(priors.shape, dtype=np.int64)
        while wanted.any():
            asked = _served(rng.multinomial(wanted, _renormalised(priors, left)), left, rng)
            counts += asked
            wanted = wanted - asked.sum(axis=1)
            left = left - asked.sum(axis=0)
        return counts


def _renormalised(priors: NDArray[np.float64], left: Counts) -> NDArray[np.float64]:
    """Each client's proportions of the labels that are left; those of the remainder, if it has none of them."""
    shares = np.where(left > 0, priors, 0.0)
    sums = shares.sum(axis=1, keepdims=True)
    return np.where(sums > 0, shares / np.where(sums > 0, sums, 1.0), left / left.sum())


def _served(asked: Counts, left: Counts, rng: np.random.Generator) -> Counts:
    """What clients get of what they ask for; where that is more than is left, chance decides."""
    served = asked.copy()
    for rank in np.flatnonzero(asked.sum(axis=0) > left):
        served[:, rank] = rng.multivariate_hypergeometric(asked[:, rank], left[rank], method="marginals")
    return served


def dirichlet_by_client(num_clients: int, gamma: float = 0.3) -> DirichletByClient:
    """Clients of one size differ in their proportions of classes."""
    return DirichletByClient(num_clients=num_clients, gamma=gamma)
