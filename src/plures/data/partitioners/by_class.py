"""Clients that own a few classes each, every class dealt evenly to its owners: the rule of the PFLEGO papers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plures.core.errors import InvalidData
from plures.data.dealing import (
    Indices,
    by_client,
    each_class,
    keyed_generator,
    refuse_empty_clients,
    refuse_new_classes,
)
from plures.data.partitioners.options import problems_of_counts, refuse
from plures.data.partitioners.protocols import PURPOSE


@dataclass(frozen=True, kw_only=True)
class ByClass:
    """Every client owns K classes; each class is dealt one example at a time, cyclically, to its owners.

    The rule of the PFLEGO papers: every client draws K distinct classes; if some class has no owner, the first
    clients are given consecutive groups of K of a random permutation of the classes instead. Where K does not
    divide the number of classes the last group is filled up from the front of the permutation, so that no client
    has more than K; the published code, which knows K = 2 and even numbers only, would make one group of three.
    """

    num_clients: int
    classes_per_client: int

    def __post_init__(self) -> None:
        refuse(problems_of_counts(num_clients=self.num_clients, classes_per_client=self.classes_per_client))

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        return self._deal(labels, self.owners_of_classes(labels, seed), keyed_generator(seed, PURPOSE, "by_class"))

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        refuse_new_classes(labels, test_labels)
        rng = keyed_generator(seed, PURPOSE, "by_class", "test")
        return self._deal(test_labels, self.owners_of_classes(labels, seed), rng)

    def owners_of_classes(self, labels: Indices, seed: int) -> dict[int, Indices]:
        """For each class the clients that own it, in order."""
        classes = np.unique(labels)
        self._refuse_impossible(len(classes))
        rng = keyed_generator(seed, PURPOSE, "by_class", "owners")
        wanted = self.classes_per_client
        held = np.stack([rng.choice(len(classes), wanted, replace=False) for _ in range(self.num_clients)])
        if len(np.unique(held)) < len(classes):
            groups = _groups(rng.permutation(len(classes)), wanted)
            held[: len(groups)] = groups
        return {int(label): np.flatnonzero((held == rank).any(axis=1)) for rank, label in enumerate(classes)}

    def _deal(self, labels: Indices, clients: dict[int, Indices], rng: np.random.Generator) -> list[Indices]:
        owners = np.empty(len(labels), dtype=np.int64)
        for label, members in each_class(labels, rng):
            owners[members] = np.resize(clients[label], len(members))
        refuse_empty_clients(owners, self.num_clients, "use fewer clients, or more classes per client")
        return by_client(owners, self.num_clients)

    def _refuse_impossible(self, num_classes: int) -> None:
        wanted = self.classes_per_client
        if wanted > num_classes:
            problem = f"{wanted} classes per client were asked for, but the labels have only {num_classes} classes"
            raise InvalidData(f"{problem}: ask for at most {num_classes}.")
        if self.num_clients * wanted < num_classes:
            problem = f"{self.num_clients} clients with {wanted} classes each cannot own all {num_classes} classes"
            raise InvalidData(f"{problem}: use more clients, or more classes per client.")


def by_class(num_clients: int, classes_per_client: int = 2) -> ByClass:
    """Every client has examples of K classes only."""
    return ByClass(num_clients=num_clients, classes_per_client=classes_per_client)


def _groups(order: Indices, size: int) -> Indices:
    """Consecutive groups of `size`; the last is filled up from the front."""
    num_groups = -(-len(order) // size)
    return np.resize(order, (num_groups, size))
