"""How examples are dealt to clients: arrays that hold, for each example, the client that gets it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from plures.core.errors import InvalidData
from plures.core.seeds import Key, derive_seed

Indices = NDArray[np.int64]
"""Positions of examples in their array."""

Owners = NDArray[np.int64]
"""For each example, the client that gets it."""


def keyed_generator(seed: int, purpose: str, *keys: Key) -> np.random.Generator:
    """numpy's form of `plures.core.seeds.generator`."""
    return np.random.default_rng(derive_seed(seed, purpose, *keys))


def each_class(labels: Indices, rng: np.random.Generator) -> Iterator[tuple[int, Indices]]:
    """Every class in order, with the shuffled positions of its examples."""
    order = np.argsort(labels, kind="stable")
    classes, starts = np.unique(labels[order], return_index=True)
    for label, members in zip(classes, np.split(order, starts[1:]), strict=True):
        yield int(label), rng.permutation(members)


def by_client(owners: Owners, num_clients: int) -> list[Indices]:
    """The positions of each client's examples, in order."""
    order = np.argsort(owners, kind="stable")
    ends = np.cumsum(np.bincount(owners, minlength=num_clients))
    return np.split(order, ends[:-1])


def refuse_empty_clients(owners: Owners, num_clients: int, remedy: str) -> None:
    """An error if some client gets nothing."""
    empty = np.flatnonzero(np.bincount(owners, minlength=num_clients) == 0)
    if len(empty):
        first = ", ".join(str(client) for client in empty[:5]) + (", ..." if len(empty) > 5 else "")
        raise InvalidData(f"{len(empty)} of {num_clients} clients would get no examples (clients {first}): {remedy}.")


def refuse_new_classes(labels: Indices, test_labels: Indices) -> None:
    """An error if some class is only in the test set: no client owns it."""
    new = np.setdiff1d(test_labels, labels)
    if len(new):
        named = ", ".join(str(label) for label in new[:10])
        remedy = "drop them from the test set, or add training examples"
        raise InvalidData(f"Test examples have classes that no training example has ({named}): {remedy}.")


def apportion(total: int, shares: NDArray[np.float64]) -> Indices:
    """Whole numbers in proportion to `shares` that sum to `total`: rounded down, the largest remainders up."""
    exact = total * shares / shares.sum()
    whole: Indices = np.floor(exact).astype(np.int64)
    short = total - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:short]] += 1
    return whole


def top_up(owners: Owners, num_clients: int, min_examples: int, rng: np.random.Generator) -> Owners:
    """Move random examples from the largest clients until every client has `min_examples`."""
    sizes = np.bincount(owners, minlength=num_clients)
    needs = np.maximum(min_examples - sizes, 0)
    gifts = _gifts(sizes, int(needs.sum()))
    members = by_client(owners, num_clients)
    given = [rng.choice(members[client], gifts[client], replace=False) for client in np.flatnonzero(gifts)]
    moved = owners.copy()
    if given:
        moved[rng.permutation(np.concatenate(given))] = np.repeat(np.arange(num_clients), needs)
    return moved


def _gifts(sizes: Indices, num_gifts: int) -> Indices:
    """How many examples each client gives, if the largest gives one at a time."""
    largest_first = [(-int(size), client) for client, size in enumerate(sizes)]
    heapq.heapify(largest_first)
    gifts = np.zeros_like(sizes)
    for _ in range(num_gifts):
        size, client = largest_first[0]
        gifts[client] += 1
        heapq.heapreplace(largest_first, (size + 1, client))
    return gifts
