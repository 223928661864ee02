"""The table [data] of an experiment file: to a federation, and back to a table with every default."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from plures.core.errors import InvalidConfig
from plures.core.seeds import generator
from plures.core.task import Augment
from plures.core.types import Batch
from plures.data import ClientData, DataSet, Federation, as_dataset, find_source, partition
from plures.data.merging import merge_validation
from plures.recipes.experiment import Data, Experiment
from plures.recipes.loading import load_named
from plures.recipes.options import called, lookup
from plures.recipes.partitions import build_partitioner, deals_to_clients, resolved_options
from plures.recipes.plain import plain_defaults

AUGMENTS: dict[str, dict[str, Any]] = {"crop": {"padding": 4}, "flip": {}, "turn": {}}
"""Changes of images by name, and the options that they have here unless told otherwise."""


def build_federation(experiment: Experiment) -> Federation:
    """All clients of an experiment, newcomers too."""
    data = experiment.data
    if data.sizes is not None:
        return stand_in(data)
    if data.shape is not None or data.classes is not None:
        raise InvalidConfig("[data] shape and classes belong to sizes, which stands in for data. Remove them.")
    partitioner = build_partitioner(data)
    dataset = some_of(load_source(data), data)
    if data.augment is not None:
        dataset = replace(dataset, augment=build_augment(data.augment))
    federation = partition(
        dataset,
        partitioner,
        seed=data.seed,
        label_space=data.label_space,
        split=data.split,
        split_by=data.split_by,
        test_rule=data.test_rule,
        test_size=data.test_size,
    )
    if data.merge_validation:
        federation = merge_validation(federation)
    if data.augment and federation.augment is not None:
        # Inputs that cannot be changed so are told of now, not in the first round.
        federation.augment(federation.client(0).train.inputs[:1], generator(data.seed, "augment"))
    return federation


def stand_in(data: Data) -> Federation:
    """Clients of given sizes with empty images, for costs that do not depend on what is in the examples."""
    if data.shape is None or data.classes is None:
        raise InvalidConfig(
            "[data] sizes stands in for data that are not at hand: give the shape of an example and the number of "
            "classes too, such as sizes = 500, shape = [3, 32, 32], classes = 10."
        )
    shape, classes, given = data.shape, data.classes, data.sizes or 0
    sizes: list[int] = given if isinstance(given, list) else [given] * data.clients
    if not sizes or min(sizes) < 1 or min(shape, default=1) < 1 or classes < 1:
        raise InvalidConfig(
            f"[data] sizes = {data.sizes}, shape = {shape}, classes = {classes}: give whole numbers above 0."
        )
    if "clients" in data.model_fields_set and data.clients != len(sizes):
        raise InvalidConfig(f"[data] has clients = {data.clients}, but {len(sizes)} sizes: give one for each client.")
    example = torch.zeros(1, *shape)

    def load(client: int) -> ClientData:
        labels = torch.arange(sizes[client]) % classes
        train = Batch(example.expand(sizes[client], *shape), labels)
        return ClientData(train=train, validation=train, test=train, classes=tuple(range(classes)))

    return Federation.from_function(len(sizes), load, lambda client: sizes[client], classes, cache_bytes=0)


def without_newcomers(experiment: Experiment, federation: Federation) -> tuple[Federation, Federation | None]:
    """Those that take part, and those that are held out."""
    data = experiment.data
    return (federation, None) if data.newcomers is None else federation.hold_out(data.newcomers, data.seed)


def load_source(data: Data) -> DataSet:
    """The data set of a name, or of a table with its name and options."""
    name, options = source_of(data)
    return as_dataset(called(f"data source '{name}'", find_loader(name), options, beside=["name"]))


def some_of(dataset: DataSet, data: Data) -> DataSet:
    """The data set, or as many of its examples as are asked for: drawn by the seed, kept in their order."""
    asked, size = data.examples, dataset.examples.num_examples
    if asked is None:
        return dataset
    count = asked if isinstance(asked, int) else round(asked * size)
    if (isinstance(asked, float) and not 0 < asked < 1) or not 1 <= count <= size:
        raise InvalidConfig(
            f"[data] examples = {asked}: {dataset.name} has {size:,} examples. Give a number from 1 to {size}, or a "
            "share between 0 and 1, such as 0.2."
        )
    chosen = torch.randperm(size, generator=generator(data.seed, "examples"))[:count]
    return dataset.only(chosen.sort().values.numpy())


def find_loader(name: str) -> Callable[..., Any]:
    """A data set of the table, or a function "package.module:name" that gives a DataSet or (inputs, labels)."""
    return load_named("data source", name) if ":" in name else find_source(name).load


def source_of(data: Data) -> tuple[str, dict[str, Any]]:
    if isinstance(data.source, str):
        return data.source, {}
    options = dict(data.source)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise InvalidConfig('[data] source is a table without a name: write source = {name = "digits"}.')
    return name, options


def build_augment(given: list[str] | Mapping[str, Any]) -> Augment | None:
    """["crop", "flip"], or a table {crop = {padding = 2}, flip = {}}: one after another; nothing for an empty list."""
    module = importlib.import_module("plures.data.augment")
    steps = []
    for name, options in augment_options(given).items():
        lookup("augment", name, AUGMENTS)
        steps.append(called(f"augment '{name}'", getattr(module, name), options))
    if not steps:
        return None
    composed: Augment = module.compose(*steps)
    return composed


def augment_options(given: list[str] | Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The options of each change, also those that are not given."""
    table = given if isinstance(given, Mapping) else {name: {} for name in given}
    for name, options in table.items():
        if not isinstance(options, Mapping):
            raise InvalidConfig(f"augment.{name} = {options!r}: give a table of its options, such as {{padding = 4}}.")
    return {name: AUGMENTS.get(name, {}) | dict(options) for name, options in table.items()}


def resolved_data(data: Data) -> dict[str, Any]:
    """The table with every default written out; it gives the same federation."""
    table = data.model_dump(exclude_none=True)
    if data.sizes is not None:
        return table
    name, options = source_of(data)
    options = plain_defaults(find_loader(name)) | options
    table["source"] = {"name": name, **options} if options else name
    if not deals_to_clients(data):
        del table["clients"]
    if data.augment is not None:
        table["augment"] = augment_options(data.augment)
    return resolved_options(data.partition, data.options) | {
        key: value for key, value in table.items() if key in Data.model_fields
    }
