"""Federations from one data set and a rule that deals it, or from clients that have their data already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.types import Batch, sum_bytes
from plures.data.client import ClientData, LabelSpace, check_label_space, make_client
from plures.data.dealing import Indices
from plures.data.examples import Given, as_examples
from plures.data.federation import CACHE_BYTES, Federation
from plures.data.partitioners import Partitioner, by_class
from plures.data.populations import PooledPopulation, ReadyPopulation
from plures.data.sources import digits
from plures.data.splitting import DEFAULT_RATIOS, Ratios, split_clients

ReadyClient = ClientData | tuple[Batch, Batch] | tuple[Batch, Batch, Batch]
"""A client's data, or (train, test), or (train, validation, test)."""


def partition(
    examples: Given,
    partitioner: Partitioner,
    *,
    seed: int,
    label_space: LabelSpace = "global",
    split: Ratios = DEFAULT_RATIOS,
    test: Given | None = None,
    num_classes: int | None = None,
    names: Sequence[str] | None = None,
) -> Federation:
    """Deal one data set to clients and split each client's share.

    A data set's own `test` examples are dealt by the same rule; then `split` divides the others into train and
    validation only. Without `num_classes`, the classes are 0 to the largest label.
    """
    check_label_space(label_space)
    pool = as_examples(examples)
    test_pool = pool if test is None else as_examples(test)
    labels, test_labels = pool.targets.numpy(), test_pool.targets.numpy()
    num_clients = partitioner.num_clients
    assigned = _checked("assign", partitioner.assign(labels, seed), num_clients, len(labels))
    tests = None
    if test is not None:
        dealt = partitioner.assign_test(labels, test_labels, seed)
        tests = _checked("assign_test", dealt, num_clients, len(test_labels))
    client_names = _names(names, num_clients)
    population = PooledPopulation(
        pool=pool,
        test_pool=test_pool,
        indices=split_clients(assigned, split, seed=seed, names=client_names, tests=tests),
        names=client_names,
        classes=_num_classes(num_classes, max(int(labels.max()), int(test_labels.max()))),
        label_space=label_space,
    )
    # All of a small pool stays gathered; of a large one a quarter, so that memory stays near the pool's own.
    return Federation(population, cache_bytes=max(CACHE_BYTES, sum_bytes(pool) // 4))


def federate(
    clients: Sequence[ReadyClient],
    *,
    names: Sequence[str] | None = None,
    label_space: LabelSpace = "global",
    num_classes: int | None = None,
) -> Federation:
    """A federation of clients that have their data already; a `ClientData` is taken as it is, its targets too."""
    check_label_space(label_space)
    if not clients:
        raise InvalidData("There are no clients: a federation has at least one.")
    client_names = _names(names, len(clients))
    ready = [_ready(client, name, label_space) for client, name in zip(clients, client_names, strict=True)]
    largest = max((client.classes[-1] for client in ready if client.classes), default=0)
    population = ReadyPopulation(
        clients=ready, names=client_names, classes=_num_classes(num_classes, largest), label_space=label_space
    )
    return Federation(population)


def digits_federation(
    num_clients: int = 20, classes_per_client: int = 2, seed: int = 0, label_space: LabelSpace = "global"
) -> Federation:
    """Handwritten digits, each client with examples of a few classes only."""
    return partition(digits(), by_class(num_clients, classes_per_client), seed=seed, label_space=label_space)


def _ready(client: ReadyClient, name: str, label_space: LabelSpace) -> ClientData:
    if isinstance(client, ClientData):
        return client
    if isinstance(client, tuple) and all(isinstance(batch, Batch) for batch in client):
        if len(client) == 2:
            return make_client(client[0], None, client[1], label_space)
        if len(client) == 3:
            return make_client(*client, label_space)
    remedy = "give (train, test) or (train, validation, test), each a Batch: from_arrays makes them"
    raise InvalidData(f"Client {name} is no client data: {remedy}.")


def _num_classes(stated: int | None, largest_label: int) -> int:
    if stated is not None and stated < 1:
        raise InvalidConfig(f"num_classes is {stated}: it must be at least 1.")
    return max(1, 1 + largest_label) if stated is None else stated


def _names(names: Sequence[str] | None, num_clients: int) -> Sequence[str]:
    if names is None:
        return [str(client) for client in range(num_clients)]
    if len(names) != num_clients:
        raise InvalidData(f"There are {num_clients} clients but {len(names)} names: give one name per client.")
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise InvalidData(f"Two clients are called '{twice}': names are unique.")
    return names


def _checked(rule: str, assigned: Sequence[Indices], num_clients: int, num_examples: int) -> list[Indices]:
    """Refuse what a user's own partitioner may get wrong."""
    problems = []
    if len(assigned) != num_clients:
        problems.append(f"`{rule}` gave {len(assigned)} lists of positions for {num_clients} clients.")
    for client, indices in enumerate(assigned):
        if len(indices) == 0:
            problems.append(f"`{rule}` gave client {client} no examples: use fewer clients.")
        elif indices.ndim != 1 or not np.issubdtype(indices.dtype, np.integer):
            problems.append(f"`{rule}` gave client {client} something other than a list of whole numbers.")
        elif indices.min() < 0 or indices.max() >= num_examples:
            problems.append(f"`{rule}` gave client {client} positions outside 0 to {num_examples - 1}.")
    if problems:
        raise InvalidData(problems)
    return [indices.astype(np.int64, copy=False) for indices in assigned]
