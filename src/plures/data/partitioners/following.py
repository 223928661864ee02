"""Test examples for clients whose training examples are dealt: each class as it is divided for training."""

from __future__ import annotations

import numpy as np

from plures.data.dealing import (
    Indices,
    Owners,
    by_client,
    each_class,
    keyed_generator,
    refuse_empty_clients,
    refuse_new_classes,
)
from plures.data.partitioners.protocols import PURPOSE


def follow_training(
    owners: Owners, labels: Indices, test_labels: Indices, num_clients: int, rng: np.random.Generator
) -> Owners:
    """The owner of each test example, drawn from the owners of its class in proportion to what they have of it.

    A client that is left without any borrows one of its commonest class.
    """
    refuse_new_classes(labels, test_labels)
    tested = np.empty(len(test_labels), dtype=np.int64)
    for label, members in each_class(test_labels, rng):
        sizes = np.bincount(owners[labels == label], minlength=num_clients)
        tested[members] = draw_owners(len(members), sizes / sizes.sum(), rng)
    _lend_to_untested(tested, test_labels, owners, labels, num_clients)
    return tested


def tests_like_training(
    rule: str, owners: Owners, labels: Indices, test_labels: Indices, num_clients: int, seed: int, remedy: str
) -> list[Indices]:
    """The test examples of each client; an error if some client gets none."""
    rng = keyed_generator(seed, PURPOSE, rule, "test")
    tested = follow_training(owners, labels, test_labels, num_clients, rng)
    refuse_empty_clients(tested, num_clients, f"{remedy}, or split without a test set")
    return by_client(tested, num_clients)


def draw_owners(num_examples: int, shares: np.ndarray, rng: np.random.Generator) -> Owners:
    """So many examples to each client, drawn by its share."""
    return np.repeat(np.arange(len(shares)), rng.multinomial(num_examples, shares))


def owners_from(assigned: list[Indices], num_examples: int) -> Owners:
    """The owner of each example; -1 for those that nobody has."""
    owners = np.full(num_examples, -1, dtype=np.int64)
    for client, positions in enumerate(assigned):
        owners[positions] = client
    return owners


def _lend_to_untested(tested: Owners, test_labels: Indices, owners: Owners, labels: Indices, num_clients: int) -> None:
    """Give each client without test examples one of its commonest class, from whoever has most of them."""
    for client in np.flatnonzero(np.bincount(tested, minlength=num_clients) == 0):
        classes, sizes = np.unique(labels[owners == client], return_counts=True)
        members = np.flatnonzero(test_labels == classes[sizes.argmax()])
        if len(members):
            lender = np.bincount(tested[members]).argmax()
            tested[members[tested[members] == lender][0]] = client
