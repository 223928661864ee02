"""What clients are tested on: a part of their own examples, or a data set's test examples dealt to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch

from plures.core.errors import InvalidConfig, InvalidData, did_you_mean
from plures.core.types import Batch
from plures.data.datasets import DataSet
from plures.data.dealing import Indices, keyed_generator
from plures.data.splitting import ClientIndices

TestRule = Literal["own", "joined", "same", "proportions"]
"""own: split from the client's examples; the data set's test examples are left out. joined: those are dealt and split
with the others. same: they are dealt by the rule that deals the others. proportions: so many are drawn for each client,
with its own shares of labels; clients may share them."""

TEST_SIZE = 100


def choose_test_rule(asked: str | None, dataset: DataSet) -> TestRule:
    """The rule asked for; by default, test examples are used where there are some."""
    if asked is None:
        return "own" if dataset.test is None else "same"
    known: tuple[TestRule, ...] = get_args(TestRule)
    for rule in known:
        if asked == rule:
            if dataset.test is None and rule != "own":
                problem = f"test_rule = '{rule}' needs test examples, but the data set '{dataset.name}' has none"
                raise InvalidData(f"{problem}: use test_rule = 'own'.")
            return rule
    raise InvalidConfig(f"test_rule is '{asked}'. {did_you_mean(asked, known)}")


def with_test_rule(rule: TestRule, dataset: DataSet) -> DataSet:
    """The data set with just those test examples that the rule deals."""
    if dataset.test is None or rule in ("same", "proportions"):
        return dataset
    if rule == "joined":
        return joined(dataset)
    return replace(dataset, test=None, test_owners=None)


def joined(dataset: DataSet) -> DataSet:
    """Test examples behind the others, as if there had been no division; groups and times are known of neither."""
    assert dataset.test is not None
    both = dataset.examples, dataset.test
    inputs, targets = (torch.cat([getattr(batch, part) for batch in both]) for part in ("inputs", "targets"))
    owners = None
    if dataset.owners is not None and dataset.test_owners is not None:
        owners = np.concatenate([dataset.owners, dataset.test_owners])
    return replace(
        dataset,
        examples=Batch(inputs, targets),
        test=None,
        owners=owners,
        test_owners=None,
        groups=None,
        times=None,
    )


def tests_in_proportion(
    clients: Sequence[ClientIndices], labels: Indices, test_labels: Indices, *, size: int, seed: int
) -> list[ClientIndices]:
    """FedSpa's rule: of each label, ceil(its share of the client's training examples x size) random test examples.

    They are distinct for one client; of a label with fewer there are all.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InvalidConfig(f"test_size is {size!r}: it must be a whole number of at least 1.")
    members = {int(label): np.flatnonzero(test_labels == label) for label in np.unique(test_labels)}
    nobody = np.empty(0, dtype=np.int64)
    found = []
    for number, client in enumerate(clients):
        rng = keyed_generator(seed, "test", "proportions", number)
        own, sizes = np.unique(labels[client.train], return_counts=True)
        drawn = [nobody]
        for label, count in zip(own.tolist(), sizes.tolist(), strict=True):
            candidates = members.get(label, nobody)
            wanted = -(-count * size // len(client.train))  # the ceiling, exact
            drawn.append(rng.choice(candidates, min(wanted, len(candidates)), replace=False))
        found.append(client._replace(test=np.concatenate(drawn)))
    return found
