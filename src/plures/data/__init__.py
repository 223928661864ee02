"""Data of a federation: where it comes from, how it is dealt to clients and split, and what is wrong with it."""

from plures.data.builders import ReadyClient, as_dataset, digits_federation, federate, partition
from plures.data.checks import check_federation
from plures.data.client import ClientData, LabelSpace
from plures.data.datasets import DataSet, Scaled
from plures.data.examples import Examples, as_examples, from_arrays, from_dataset
from plures.data.federation import Federation
from plures.data.fingerprints import Fingerprint
from plures.data.partitioners import (
    PARTITIONERS,
    Partitioner,
    by_class,
    by_quantity,
    dirichlet,
    dirichlet_by_client,
    feature_shift,
    from_flwr,
    iid,
    mixture,
    natural,
    shards,
)
from plures.data.populations import Population
from plures.data.sources import SOURCES, Source, digits, find_source, from_hub, synthetic_population
from plures.data.splitting import DEFAULT_RATIOS, Ratios
from plures.data.synthesis import Synthetic
from plures.data.text import Vocabulary

__all__ = [
    "DEFAULT_RATIOS",
    "PARTITIONERS",
    "SOURCES",
    "ClientData",
    "DataSet",
    "Examples",
    "Federation",
    "Fingerprint",
    "LabelSpace",
    "Partitioner",
    "Population",
    "Ratios",
    "ReadyClient",
    "Scaled",
    "Source",
    "Synthetic",
    "Vocabulary",
    "as_dataset",
    "as_examples",
    "by_class",
    "by_quantity",
    "check_federation",
    "digits",
    "digits_federation",
    "dirichlet",
    "dirichlet_by_client",
    "feature_shift",
    "federate",
    "find_source",
    "from_arrays",
    "from_dataset",
    "from_flwr",
    "from_hub",
    "iid",
    "mixture",
    "natural",
    "partition",
    "shards",
    "synthetic_population",
]
