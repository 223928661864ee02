"""Federations from one data set and a rule that deals it, or from clients that have their data already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.goals import GoalName, goal_named
from plures.core.types import Batch, sum_bytes
from plures.data.client import ClientData, LabelSpace, check_label_space, make_client
from plures.data.datasets import DataSet
from plures.data.deals import deal
from plures.data.dividing import SplitBy
from plures.data.examples import Given, as_examples
from plures.data.federation import CACHE_BYTES, Federation
from plures.data.partitioners import AnyPartitioner, by_class
from plures.data.populations import PooledPopulation, ReadyPopulation
from plures.data.sources import digits
from plures.data.splitting import DEFAULT_RATIOS, Ratios
from plures.data.test_sets import TEST_SIZE, TestRule

SMALL_BYTES = 8 * 2**20

ReadyClient = ClientData | tuple[Batch, Batch] | tuple[Batch, Batch, Batch]
"""A client's data, or (train, test), or (train, validation, test)."""


def partition(
    examples: Given | DataSet,
    partitioner: AnyPartitioner,
    *,
    seed: int,
    label_space: LabelSpace = "global",
    split: Ratios = DEFAULT_RATIOS,
    split_by: SplitBy = "random",
    test: Given | None = None,
    test_rule: TestRule | None = None,
    test_size: int = TEST_SIZE,
    num_classes: int | None = None,
    names: Sequence[str] | None = None,
    goal: GoalName = "classification",
) -> Federation:
    """Deal one data set to clients and split each client's share.

    A data set's own `test` examples are dealt by the same rule, unless `test_rule` says otherwise; then `split` divides
    the others into train and validation only. Without `num_classes`, the classes are 0 to the largest label. For
    examples of your own, `goal` says whether targets are classes, numbers ("regression") or tokens ("next_token").
    """
    check_label_space(label_space)
    dataset = as_dataset(examples, test, goal)
    if label_space == "local" and dataset.goal.name != "classification":
        problem = f"label_space is 'local', but the data set '{dataset.name}' has no classes to number"
        raise InvalidConfig(f"{problem}: use label_space = 'global'.")
    dealt = deal(
        dataset, partitioner, seed=seed, split=split, split_by=split_by, test_rule=test_rule, test_size=test_size
    )
    client_names = dealt.names if names is None else _names(names, len(dealt.clients))
    # Unless training examples decide its form, a data set is known by all its examples, left out or not.
    dataset, pool = dataset if dataset.fit is None else dealt.dataset, dealt.pool
    population = PooledPopulation(
        pool=pool,
        test_pool=dealt.test_pool,
        indices=dealt.clients,
        names=client_names,
        classes=_num_classes(num_classes, dataset.num_classes - 1),
        label_space=label_space,
        change=dealt.change,
    )
    # All of a small pool stays gathered; of a large one a quarter, so that memory stays near the pool's own.
    cache_bytes = min(CACHE_BYTES, max(SMALL_BYTES, sum_bytes(pool) // 4))
    return Federation(
        population,
        cache_bytes=cache_bytes,
        goal=dataset.goal,
        prepare=dataset.prepare,
        augment=dataset.augment,
        class_names=dataset.class_names,
    )


def as_dataset(examples: Given | DataSet, test: Given | None = None, goal: GoalName = "classification") -> DataSet:
    """A data set as it is, or one of a user's own examples."""
    others = None if test is None else as_examples(test, goal)
    if isinstance(examples, DataSet):
        return examples if others is None else replace(examples, test=others)
    return DataSet(name="examples", examples=as_examples(examples, goal), test=others, goal=goal_named(goal))


def federate(
    clients: Sequence[ReadyClient],
    *,
    names: Sequence[str] | None = None,
    label_space: LabelSpace = "global",
    num_classes: int | None = None,
    goal: GoalName = "classification",
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
    return Federation(population, goal=goal_named(goal))


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
