"""Data sets by name; importing this package registers them all."""

from plures.data.sources import (
    authors,
    cifar,
    emnist,
    femnist,
    gldv2,
    grouped_tables,
    hospitals,
    image_folder,
    mnist,
    mnist_writers,
    npz,
    omniglot,
    own_tables,
    sensors,
    shakespeare,
    stackexchange,
    stackoverflow,
    writers,
)
from plures.data.sources.embedded import digits
from plures.data.sources.hub import from_hub
from plures.data.sources.registry import SOURCES, Source, data_folders, find_source, source
from plures.data.sources.synthetic import synthetic_population

__all__ = [
    "SOURCES",
    "Source",
    "authors",
    "cifar",
    "data_folders",
    "digits",
    "emnist",
    "femnist",
    "find_source",
    "from_hub",
    "gldv2",
    "grouped_tables",
    "hospitals",
    "image_folder",
    "mnist",
    "mnist_writers",
    "npz",
    "omniglot",
    "own_tables",
    "sensors",
    "shakespeare",
    "source",
    "stackexchange",
    "stackoverflow",
    "synthetic_population",
    "writers",
]
