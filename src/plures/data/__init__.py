"""Data of a federation: where it comes from, how it is dealt to clients and split, and what is wrong with it."""

from plures.data.builders import ReadyClient, digits_federation, federate, partition
from plures.data.checks import check_federation
from plures.data.client import ClientData, LabelSpace
from plures.data.examples import Examples, as_examples, from_arrays, from_dataset
from plures.data.federation import Federation
from plures.data.fingerprints import Fingerprint
from plures.data.partitioners import PARTITIONERS, Partitioner, by_class, dirichlet, iid
from plures.data.populations import Population
from plures.data.sources import SOURCES, digits
from plures.data.splitting import DEFAULT_RATIOS, Ratios

__all__ = [
    "DEFAULT_RATIOS",
    "PARTITIONERS",
    "SOURCES",
    "ClientData",
    "Examples",
    "Federation",
    "Fingerprint",
    "LabelSpace",
    "Partitioner",
    "Population",
    "Ratios",
    "ReadyClient",
    "as_examples",
    "by_class",
    "check_federation",
    "digits",
    "digits_federation",
    "dirichlet",
    "federate",
    "from_arrays",
    "from_dataset",
    "iid",
    "partition",
]
