"""Rules of flwr-datasets: whatever takes a table as `.dataset` and gives rows by `load_partition`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.types import Batch
from plures.data import DataSet, feature_shift, from_flwr, partition


class Table:
    """As much of a table of the package datasets as a rule needs."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = {name: list(values) for name, values in columns.items()}

    @classmethod
    def from_dict(cls, columns: dict[str, Any]) -> Table:
        return cls(columns)

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]

    def select(self, rows: Any) -> Table:
        return Table({name: [values[row] for row in rows] for name, values in self.columns.items()})


class ByColumn:
    """Rows of one value of a column; takes one table in its life, as those of flwr-datasets do."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.table: Table | None = None

    @property
    def dataset(self) -> Table | None:
        return self.table

    @dataset.setter
    def dataset(self, table: Table) -> None:
        assert self.table is None
        self.table = table

    def load_partition(self, number: int) -> Table:
        assert self.table is not None
        values = np.array(self.table[self.column])
        return self.table.select(np.flatnonzero(values == np.unique(values)[number]))


class Counting(ByColumn):
    """Also says how many clients there are."""

    @property
    def num_partitions(self) -> int:
        assert self.table is not None
        return len(set(self.table[self.column]))


class Columns(ByColumn):
    """Deals columns, not rows."""

    num_partitions = 2

    def load_partition(self, number: int) -> Table:
        return Table({"label": []})


@pytest.fixture(autouse=True)
def _tables(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("datasets")
    module.Dataset = Table  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)


def dataset(**changes: Any) -> DataSet:
    examples = Batch(torch.arange(60)[:, None].float(), torch.arange(60) % 3)
    return DataSet(name="numbers", examples=examples, **changes)


@pytest.mark.parametrize("rule", [from_flwr(Counting("label")), from_flwr(ByColumn("label"), num_clients=3)])
def test_clients_have_the_rows_that_the_rule_gives_them(rule: Any) -> None:
    federation = partition(dataset(), rule, seed=0)

    assert [federation.client(client).classes for client in range(3)] == [(0,), (1,), (2,)]
    total = [sum(b.num_examples for b in federation.client(client).splits.values()) for client in range(3)]
    assert total == [20, 20, 20]


def test_a_rule_can_be_used_more_than_once() -> None:
    rule = from_flwr(Counting("label"))

    assert partition(dataset(), rule, seed=0).fingerprint() == partition(dataset(), rule, seed=0).fingerprint()


def test_a_rule_sees_natural_owners_by_name() -> None:
    owned = dataset(owners=np.repeat([0, 1], 30), owner_names=("zoe", "abe"))

    federation = partition(owned, from_flwr(Counting("writer"), owner="writer"), seed=0)

    # Names in order: abe, who owns the second half, comes first.
    assert all(float(batch.inputs.min()) >= 30 for batch in federation.client(0).splits.values())


def test_test_examples_follow_the_training_examples() -> None:
    test = Batch(torch.zeros(30, 1), torch.arange(30) % 3)

    federation = partition(dataset(test=test), from_flwr(Counting("label")), seed=0)

    assert [set(federation.client(client).test.targets.tolist()) for client in range(3)] == [{0}, {1}, {2}]


def test_inputs_of_its_clients_may_be_shifted() -> None:
    images = DataSet(name="images", examples=Batch(torch.rand(60, 1, 5, 5), torch.arange(60) % 3))

    assert partition(images, feature_shift(from_flwr(Counting("label"))), seed=0).num_clients == 3


def test_what_is_no_partitioner_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="dict is no partitioner of flwr-datasets"):
        from_flwr({})


def test_a_rule_that_does_not_know_its_clients_needs_their_number() -> None:
    with pytest.raises(InvalidConfig, match="ByColumn does not say how many clients it makes: give num_clients"):
        partition(dataset(), from_flwr(ByColumn("label")), seed=0)


def test_a_rule_that_deals_columns_is_refused() -> None:
    with pytest.raises(InvalidData, match=r"Columns gave client 0 no column 'position'.*deals rows"):
        partition(dataset(), from_flwr(Columns("label")), seed=0)


def test_without_the_package_one_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)

    with pytest.raises(InvalidConfig, match="pip install flwr-datasets"):
        partition(dataset(), from_flwr(Counting("label")), seed=0)
