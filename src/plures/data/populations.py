"""Where clients' data come from: indices into one pool of examples, ready clients, or a function of the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from plures.core.types import Batch
from plures.data.client import ClientData, LabelSpace, make_client, to_original
from plures.data.fingerprints import Fingerprint, digest_of_examples, digest_of_split, digest_of_text
from plures.data.splitting import ClientIndices

FINGERPRINT_SAMPLE = 16
"""Clients that stand for a population which is too large to read in whole."""


Change = Callable[[int, str, Tensor], Tensor]
"""(client, split, inputs) -> the inputs as that client sees them."""


class Population(Protocol):
    """All clients of a federation, by number; what is asked often (sizes, names) needs no examples."""

    @property
    def num_clients(self) -> int: ...

    @property
    def classes(self) -> int: ...

    @property
    def label_space(self) -> LabelSpace: ...

    def load(self, client: int) -> ClientData: ...

    def name(self, client: int) -> str: ...

    def num_examples(self, client: int) -> int: ...

    def num_classes(self, client: int) -> int: ...

    def fingerprint(self) -> Fingerprint: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class PooledPopulation:
    """Every example is held once; a client is three arrays of positions."""

    pool: Batch
    test_pool: Batch
    """Where test positions count: the pool itself, or a data set's own test examples."""
    indices: Sequence[ClientIndices]
    names: Sequence[str]
    classes: int
    label_space: LabelSpace
    change: Change | None = None
    """How each client sees its inputs, if not as they are held."""

    @property
    def num_clients(self) -> int:
        return len(self.indices)

    def load(self, client: int) -> ClientData:
        train, validation, test = (self._take(client, split) for split in ClientIndices._fields)
        return make_client(train, validation, test, self.label_space)

    def name(self, client: int) -> str:
        return self.names[client]

    def num_examples(self, client: int) -> int:
        return len(self.indices[client].train)

    def num_classes(self, client: int) -> int:
        return self.classes if self.label_space == "global" else self._local_classes[client]

    def fingerprint(self) -> Fingerprint:
        pools = [self.pool] if self.test_pool is self.pool else [self.pool, self.test_pool]
        data = digest_of_examples(pools)
        if self.change is not None:
            sample = evenly_spaced(self.num_clients, FINGERPRINT_SAMPLE)
            data = digest_of_text(data, digest_of_examples(self._take(client, "train") for client in sample))
        return {"data": data, "split": digest_of_split(self.label_space, self.indices)}

    def _take(self, client: int, split: str) -> Batch:
        pool = self.test_pool if split == "test" else self.pool
        chosen = torch.from_numpy(getattr(self.indices[client], split))
        inputs, targets = (tensor.index_select(0, chosen) for tensor in pool)
        return Batch(inputs if self.change is None else self.change(client, split, inputs), targets)

    @cached_property
    def _local_classes(self) -> list[int]:
        labels, test_labels = self.pool.targets.numpy(), self.test_pool.targets.numpy()
        return [
            len(np.unique(np.concatenate([labels[own.train], labels[own.validation], test_labels[own.test]])))
            for own in self.indices
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadyPopulation:
    """Clients that came with their data."""

    clients: Sequence[ClientData]
    names: Sequence[str]
    classes: int
    label_space: LabelSpace

    @property
    def num_clients(self) -> int:
        return len(self.clients)

    def load(self, client: int) -> ClientData:
        return self.clients[client]

    def name(self, client: int) -> str:
        return self.names[client]

    def num_examples(self, client: int) -> int:
        return self.clients[client].train.num_examples

    def num_classes(self, client: int) -> int:
        return self.classes if self.label_space == "global" else len(self.clients[client].classes)

    def fingerprint(self) -> Fingerprint:
        return fingerprint_of_clients(self.clients, self.label_space)


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionPopulation:
    """Clients made when they are asked for: nothing here grows with their number."""

    num_clients: int
    load: Callable[[int], ClientData]
    num_examples: Callable[[int], int]
    classes: int
    client_classes: Callable[[int], int] | None = None
    """Outputs a client needs in the local label space."""
    name: Callable[[int], str] = field(default=str)
    label_space: LabelSpace = "global"

    def num_classes(self, client: int) -> int:
        return self.classes if self.client_classes is None else self.client_classes(client)

    def fingerprint(self) -> Fingerprint:
        """Of a few clients, evenly spaced, and of the population's size."""
        sample = evenly_spaced(self.num_clients, FINGERPRINT_SAMPLE)
        read = fingerprint_of_clients([self.load(client) for client in sample], self.label_space)
        return {"data": read["data"], "split": digest_of_text(self.num_clients, read["split"])}


def fingerprint_of_clients(clients: Sequence[ClientData], label_space: LabelSpace) -> Fingerprint:
    """The examples in client order with their original labels; who has which then follows from the sizes alone."""
    local = label_space == "local"
    batches = [
        Batch(batch.inputs, to_original(batch.targets, client.classes)) if local else batch
        for client in clients
        for batch in client.splits.values()
    ]
    sizes = digest_of_text(label_space, *(batch.num_examples for batch in batches))
    return {"data": digest_of_examples(batches), "split": sizes}


def evenly_spaced(num_clients: int, sample: int | None) -> list[int]:
    """All clients, or `sample` of them from the first to the last."""
    if sample is None or sample >= num_clients:
        return list(range(num_clients))
    return [int(client) for client in np.linspace(0, num_clients - 1, sample)]
