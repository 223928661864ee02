"""The pathological rule: examples sorted by label, cut into shards, a few shards to each client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plures.core.errors import InvalidData
from plures.data.dealing import Indices, Owners, by_client, each_class, keyed_generator
from plures.data.partitioners.following import tests_like_training
from plures.data.partitioners.options import problems_of_counts, refuse
from plures.data.partitioners.protocols import PURPOSE


@dataclass(frozen=True, kw_only=True)
class Shards:
    """Clients x s shards of sorted examples, s at random for each client: most clients see about s classes.

    Shards differ in size by at most one example. Within a class the order is random.
    """

    num_clients: int
    shards_per_client: int

    def __post_init__(self) -> None:
        refuse(problems_of_counts(num_clients=self.num_clients, shards_per_client=self.shards_per_client))

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        return by_client(self._owners(labels, seed), self.num_clients)

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        """Test examples of a class go to its owners, in proportion to what they have of it."""
        owners, remedy = self._owners(labels, seed), "use fewer clients"
        return tests_like_training("shards", owners, labels, test_labels, self.num_clients, seed, remedy)

    def _owners(self, labels: Indices, seed: int) -> Owners:
        num_shards = self.num_clients * self.shards_per_client
        if len(labels) < num_shards:
            problem = f"{len(labels)} examples cannot be cut into {num_shards} shards"
            raise InvalidData(f"{problem}: use fewer clients, or fewer shards per client.")
        rng = keyed_generator(seed, PURPOSE, "shards")
        in_order = np.concatenate([members for _, members in each_class(labels, rng)])
        clients = rng.permutation(np.repeat(np.arange(self.num_clients), self.shards_per_client))
        sizes = np.full(num_shards, len(labels) // num_shards)
        sizes[: len(labels) % num_shards] += 1
        owners = np.empty(len(labels), dtype=np.int64)
        owners[in_order] = np.repeat(clients, sizes)
        return owners


def shards(num_clients: int, shards_per_client: int = 2) -> Shards:
    """Every client has a few pieces of the examples sorted by label."""
    return Shards(num_clients=num_clients, shards_per_client=shards_per_client)
