"""Rules that deal the examples of one data set to clients."""

from __future__ import annotations

from collections.abc import Callable

from plures.data.partitioners.by_class import by_class
from plures.data.partitioners.by_size import by_quantity, iid
from plures.data.partitioners.dirichlet import dirichlet
from plures.data.partitioners.dirichlet_by_client import dirichlet_by_client
from plures.data.partitioners.flower import from_flwr
from plures.data.partitioners.mixture import mixture
from plures.data.partitioners.natural import natural
from plures.data.partitioners.protocols import (
    AnyPartitioner,
    ChangesInputs,
    ChoosesClients,
    NeedsDataSet,
    Partitioner,
)
from plures.data.partitioners.shards import shards
from plures.data.partitioners.shifting import feature_shift

__all__ = [
    "PARTITIONERS",
    "AnyPartitioner",
    "ChangesInputs",
    "ChoosesClients",
    "NeedsDataSet",
    "Partitioner",
    "by_class",
    "by_quantity",
    "dirichlet",
    "dirichlet_by_client",
    "feature_shift",
    "from_flwr",
    "iid",
    "mixture",
    "natural",
    "shards",
]

PARTITIONERS: dict[str, Callable[..., AnyPartitioner]] = {
    "by_class": by_class,
    "by_quantity": by_quantity,
    "dirichlet": dirichlet,
    "dirichlet_by_client": dirichlet_by_client,
    "feature_shift": feature_shift,
    "iid": iid,
    "mixture": mixture,
    "natural": natural,
    "shards": shards,
}
"""By the names that stand in experiment files."""
