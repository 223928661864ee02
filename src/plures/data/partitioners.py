"""Rules that deal the examples of one data set to clients, from their labels and a seed alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import numpy as np

from plures.core.errors import InvalidConfig, InvalidData
from plures.data.dealing import (
    Indices,
    Owners,
    by_client,
    each_class,
    keyed_generator,
    refuse_empty_clients,
    refuse_new_classes,
    top_up,
)

PURPOSE = "partition"


class Partitioner(Protocol):
    """Any rule of this form can be used; the same labels and seed always give the same clients."""

    @property
    def num_clients(self) -> int: ...

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        """The positions of each client's examples."""

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        """The same for a data set's own test examples, so that clients are tested on what they are trained on."""


@dataclass(frozen=True, kw_only=True)
class Iid:
    """Every client gets a uniform draw; sizes differ by at most one."""

    num_clients: int

    def __post_init__(self) -> None:
        _refuse(_problems_of_counts(num_clients=self.num_clients))

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        return self._deal(len(labels), keyed_generator(seed, PURPOSE, "iid", "train"))

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        return self._deal(len(test_labels), keyed_generator(seed, PURPOSE, "iid", "test"))

    def _deal(self, num_examples: int, rng: np.random.Generator) -> list[Indices]:
        owners = rng.permutation(np.arange(num_examples) % self.num_clients)
        refuse_empty_clients(owners, self.num_clients, f"use at most {num_examples} clients")
        return by_client(owners, self.num_clients)


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
        _refuse(_problems_of_counts(num_clients=self.num_clients, classes_per_client=self.classes_per_client))

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
        problems = _problems_of_counts(num_clients=self.num_clients, min_examples=self.min_examples)
        if not isinstance(self.alpha, int | float) or not (isfinite(self.alpha) and self.alpha > 0):
            problems.append(f"alpha is {self.alpha!r}: it must be a positive number, for example 0.4.")
        _refuse(problems)

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        return by_client(self._owners(labels, seed), self.num_clients)

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        """Test examples of a class are drawn in the proportions of its training examples; nobody gets none."""
        refuse_new_classes(labels, test_labels)
        owners = self._owners(labels, seed)
        rng = keyed_generator(seed, PURPOSE, "dirichlet", "test")
        tested = np.empty(len(test_labels), dtype=np.int64)
        for label, members in each_class(test_labels, rng):
            sizes = np.bincount(owners[labels == label], minlength=self.num_clients)
            tested[members] = self._draw_owners(len(members), sizes / sizes.sum(), rng)
        self._lend_to_untested(tested, test_labels, owners, labels)
        remedy = "use fewer clients, a higher alpha or a higher min_examples, or split without a test set"
        refuse_empty_clients(tested, self.num_clients, remedy)
        return by_client(tested, self.num_clients)

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
            owners[members] = self._draw_owners(len(members), shares, rng)
        sizes = np.bincount(owners, minlength=self.num_clients)
        return owners, int(np.maximum(self.min_examples - sizes, 0).sum())

    def _draw_owners(self, num_examples: int, shares: np.ndarray, rng: np.random.Generator) -> Owners:
        return np.repeat(np.arange(self.num_clients), rng.multinomial(num_examples, shares))

    def _lend_to_untested(self, tested: Owners, test_labels: Indices, owners: Owners, labels: Indices) -> None:
        """Give each client without test examples one of its commonest class, from whoever has most of them."""
        for client in np.flatnonzero(np.bincount(tested, minlength=self.num_clients) == 0):
            classes, sizes = np.unique(labels[owners == client], return_counts=True)
            members = np.flatnonzero(test_labels == classes[sizes.argmax()])
            if len(members):
                lender = np.bincount(tested[members]).argmax()
                tested[members[tested[members] == lender][0]] = client

    def _refuse_too_many_clients(self, num_examples: int) -> None:
        if num_examples < self.num_clients * self.min_examples:
            most = num_examples // self.min_examples
            problem = f"{num_examples} examples cannot give {self.num_clients} clients {self.min_examples} each"
            raise InvalidData(f"{problem}: use at most {most} clients, or a smaller min_examples.")


def iid(num_clients: int) -> Iid:
    """Every client gets a uniform draw of all examples."""
    return Iid(num_clients=num_clients)


def by_class(num_clients: int, classes_per_client: int = 2) -> ByClass:
    """Every client has examples of K classes only."""
    return ByClass(num_clients=num_clients, classes_per_client=classes_per_client)


def dirichlet(num_clients: int, alpha: float = 0.4, min_examples: int = 5) -> Dirichlet:
    """Clients differ in size and in their proportions of classes."""
    return Dirichlet(num_clients=num_clients, alpha=alpha, min_examples=min_examples)


PARTITIONERS: dict[str, Callable[..., Partitioner]] = {"iid": iid, "by_class": by_class, "dirichlet": dirichlet}


def _groups(order: Indices, size: int) -> Indices:
    """Consecutive groups of `size`; the last is filled up from the front."""
    num_groups = -(-len(order) // size)
    return np.resize(order, (num_groups, size))


def _problems_of_counts(**counts: int) -> list[str]:
    problems = []
    for name, count in counts.items():
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
            problems.append(f"{name} is {count!r}: it must be a whole number of at least 1.")
    return problems


def _refuse(problems: list[str]) -> None:
    if problems:
        raise InvalidConfig(problems)
