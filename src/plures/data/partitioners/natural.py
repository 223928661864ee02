"""The clients that the data come from: writers, users, hospitals; and which of them take part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plures.core.errors import InvalidConfig, InvalidData
from plures.data.datasets import DataSet
from plures.data.dealing import Indices, Owners, by_client, keyed_generator
from plures.data.partitioners.options import problems_of_counts, refuse
from plures.data.partitioners.protocols import PURPOSE
from plures.data.splitting import ClientIndices


@dataclass(frozen=True, kw_only=True)
class Natural:
    """Every owner of examples is a client; the rules by which papers choose theirs are filters."""

    min_examples: int = 5
    """Before the split; a data set's own test examples do not count."""
    min_train: int = 0
    """After the split; validation examples, which are taken from those to train on, count too."""
    min_test: int = 0
    max_train: int | None = None
    """Of more, so many are drawn."""
    sample_clients: int | None = None
    """So many clients are drawn from those that pass."""

    def __post_init__(self) -> None:
        given = {"max_train": self.max_train, "sample_clients": self.sample_clients}
        limits = {name: count for name, count in given.items() if count is not None}
        counts = problems_of_counts(min_examples=self.min_examples, **limits)
        refuse(counts + problems_of_counts(0, min_train=self.min_train, min_test=self.min_test))

    def bind(self, dataset: DataSet, seed: int) -> Owned:
        if dataset.owners is None:
            problem = f"The data set '{dataset.name}' does not say whose each example is, as natural clients need it"
            raise InvalidData(f"{problem}: choose a rule that deals the examples, such as dirichlet.")
        sizes = np.bincount(dataset.owners, minlength=len(dataset.owner_names))
        clients = np.flatnonzero(sizes >= self.min_examples)
        if not len(clients):
            problem = f"No client of '{dataset.name}' has {self.min_examples} examples, the most are {sizes.max()}"
            raise InvalidData(f"{problem}: lower min_examples.")
        return Owned(rule=self, dataset=dataset, clients=clients)


@dataclass(frozen=True, kw_only=True, eq=False)
class Owned:
    """The owners of one data set that have examples enough."""

    rule: Natural
    dataset: DataSet
    clients: Indices
    """Their numbers among all owners."""

    @property
    def num_clients(self) -> int:
        return len(self.clients)

    @property
    def names(self) -> list[str]:
        known = self.dataset.owner_names
        return [known[owner] if known else str(owner) for owner in self.clients]

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        assert self.dataset.owners is not None
        return self._of_clients(self.dataset.owners)

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        """The owners' own; some may have none."""
        if self.dataset.test_owners is None:
            problem = f"The data set '{self.dataset.name}' does not say whose its test examples are"
            remedy = "use the test rule 'own', which splits each client's examples, or 'proportions'"
            raise InvalidData(f"{problem}: {remedy}.")
        return self._of_clients(self.dataset.test_owners)

    def choose(self, clients: Sequence[ClientIndices], seed: int) -> dict[int, ClientIndices]:
        """The clients that pass the filters, or so many of them as are asked for."""
        enough = [number for number, client in enumerate(clients) if self._passes(client)]
        if not enough:
            wanted = f"{self.rule.min_train} examples to train on and {self.rule.min_test} to test on"
            raise InvalidData(f"No client of '{self.dataset.name}' has {wanted}: lower min_train or min_test.")
        return {number: self._truncated(clients[number], number, seed) for number in self._drawn(enough, seed)}

    def _passes(self, client: ClientIndices) -> bool:
        trained = len(client.train) + len(client.validation)
        return trained >= self.rule.min_train and len(client.test) >= self.rule.min_test

    def _drawn(self, enough: list[int], seed: int) -> list[int]:
        wanted = self.rule.sample_clients
        if wanted is None:
            return enough
        if wanted > len(enough):
            found = f"only {len(enough)} clients of '{self.dataset.name}' pass"
            raise InvalidConfig(f"sample_clients is {wanted}, but {found}: ask for at most {len(enough)}.")
        rng = keyed_generator(seed, PURPOSE, "natural", "clients")
        return sorted(rng.choice(enough, wanted, replace=False).tolist())

    def _truncated(self, client: ClientIndices, number: int, seed: int) -> ClientIndices:
        most = self.rule.max_train
        if most is None or len(client.train) <= most:
            return client
        rng = keyed_generator(seed, PURPOSE, "natural", "train", number)
        return client._replace(train=client.train[np.sort(rng.choice(len(client.train), most, replace=False))])

    def _of_clients(self, owners: Owners) -> list[Indices]:
        places = np.full(1 + max(owners.max(initial=0), self.clients.max()), -1, dtype=np.int64)
        places[self.clients] = np.arange(self.num_clients)
        theirs = np.flatnonzero(places[owners] >= 0)
        return [theirs[ranks] for ranks in by_client(places[owners[theirs]], self.num_clients)]


def natural(
    min_train: int = 0,
    min_test: int = 0,
    max_train: int | None = None,
    sample_clients: int | None = None,
    min_examples: int = 5,
) -> Natural:
    """The clients that the data set itself names."""
    return Natural(
        min_train=min_train,
        min_test=min_test,
        max_train=max_train,
        sample_clients=sample_clients,
        min_examples=min_examples,
    )
