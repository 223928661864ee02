"""Rules of flwr-datasets: any object that takes a table as `.dataset` and gives rows by `load_partition(i)`."""

from __future__ import annotations

import copy
import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from plures.core.errors import InvalidConfig, InvalidData
from plures.data.datasets import DataSet
from plures.data.dealing import Indices
from plures.data.partitioners.following import owners_from, tests_like_training

POSITION = "position"
"""The column by which rows are found again."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FromFlwr:
    """A rule of flwr-datasets, which has a seed of its own: the data's seed does not change how it deals."""

    partitioner: Any
    num_clients: int | None
    label: str
    owner: str

    def bind(self, dataset: DataSet, seed: int) -> Dealt:
        columns: dict[str, Any] = {POSITION: np.arange(len(dataset.labels)), self.label: dataset.labels}
        if dataset.owners is not None:
            known = dataset.owner_names
            columns[self.owner] = [known[owner] for owner in dataset.owners] if known else dataset.owners
        rule = copy.deepcopy(self.partitioner)  # a partitioner of flwr-datasets takes one table in its life
        rule.dataset = _table(columns)
        return Dealt(assigned=[_positions(rule, client) for client in range(self._num_clients(rule))])

    def _num_clients(self, rule: Any) -> int:
        """As stated, or as the rule says now that it has its table."""
        found = getattr(rule, "num_partitions", None) if self.num_clients is None else self.num_clients
        if found is None:
            raise InvalidConfig(f"{type(rule).__name__} does not say how many clients it makes: give num_clients.")
        return int(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dealt:
    """Clients that have been dealt already."""

    assigned: list[Indices]

    @property
    def num_clients(self) -> int:
        return len(self.assigned)

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        return self.assigned

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        """Test examples of a class go to its owners, in proportion to what they have of it."""
        owners = owners_from(self.assigned, len(labels))
        had = owners >= 0
        remedy = "use fewer partitions"
        return tests_like_training("flwr", owners[had], labels[had], test_labels, self.num_clients, seed, remedy)


def from_flwr(partitioner: Any, num_clients: int | None = None, label: str = "label", owner: str = "owner") -> FromFlwr:
    """Any partitioner of flwr-datasets, such as `DirichletPartitioner(10, partition_by="label", alpha=0.5)`.

    It sees a table with the columns `label` and, where the data set has natural clients, `owner`. `num_clients` is
    for rules that do not know their number.
    """
    if not callable(getattr(partitioner, "load_partition", None)):
        kind = type(partitioner).__name__
        raise InvalidConfig(f"{kind} is no partitioner of flwr-datasets: it has no load_partition.")
    return FromFlwr(partitioner=partitioner, num_clients=num_clients, label=label, owner=owner)


def _table(columns: dict[str, Any]) -> Any:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        remedy = "pip install flwr-datasets"
        raise InvalidConfig(f"Rules of flwr-datasets need that package, which is not installed: {remedy}.") from error
    return datasets.Dataset.from_dict(columns)


def _positions(rule: Any, client: int) -> Indices:
    try:
        return np.asarray(rule.load_partition(client)[POSITION], dtype=np.int64).reshape(-1)
    except KeyError as error:
        remedy = "use a rule that deals rows, not columns"
        raise InvalidData(f"{type(rule).__name__} gave client {client} no column '{POSITION}': {remedy}.") from error
