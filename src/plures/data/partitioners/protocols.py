"""What a rule that deals examples to clients must offer, and what it may offer besides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from plures.data.datasets import DataSet
from plures.data.dealing import Indices
from plures.data.splitting import ClientIndices

PURPOSE = "partition"
"""Of the draws of all rules."""


class Partitioner(Protocol):
    """Any rule of this form can be used; the same labels and seed always give the same clients."""

    @property
    def num_clients(self) -> int: ...

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        """The positions of each client's examples."""

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        """The same for a data set's own test examples, so that clients are tested on what they are trained on."""


@runtime_checkable
class NeedsDataSet(Protocol):
    """A rule that needs more than labels, such as natural owners: bound to a data set, it is a partitioner."""

    def bind(self, dataset: DataSet, seed: int) -> Partitioner: ...


AnyPartitioner = Partitioner | NeedsDataSet


@runtime_checkable
class ChoosesClients(Protocol):
    """A partitioner that sees its clients once more when they are split, and says which of them stay."""

    def choose(self, clients: Sequence[ClientIndices], seed: int) -> dict[int, ClientIndices]:
        """The clients that stay, by their number, with the examples that they keep."""


@runtime_checkable
class ChangesInputs(Protocol):
    """A partitioner whose clients see the inputs each in a way of their own."""

    def refuse_inputs(self, inputs: Tensor) -> None:
        """An error if inputs of this form cannot be changed."""

    def change(self, inputs: Tensor, *, client: int, split: str, seed: int) -> Tensor:
        """A client's inputs as it sees them, of the same shape and type; always the same."""
