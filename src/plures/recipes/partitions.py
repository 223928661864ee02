"""Rules that deal examples as they stand in [data]: a name with options, one around another, or several at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from plures.core.errors import InvalidConfig
from plures.data import PARTITIONERS
from plures.data.dealing import apportion
from plures.data.partitioners import AnyPartitioner
from plures.recipes.experiment import Data
from plures.recipes.options import called, lookup
from plures.recipes.plain import plain_defaults

BASE, PARTS = "base", "parts"
NOT_IN_FILES = {"num_clients", "partitioner", "parts"}
"""What makers ask for under another name than a file has for it, or in another form."""


def build_partitioner(data: Data) -> AnyPartitioner:
    """The rule that [data] names; further keys of the table are its options."""
    if "num_clients" in data.options:
        raise InvalidConfig("[data] has no key 'num_clients'. Did you mean 'clients'?")
    if "clients" in data.model_fields_set and not deals_to_clients(data):
        remedy = "leave it out; sample_clients = 100 draws so many of them"
        raise InvalidConfig(f"partition '{data.partition}' takes the clients of the data set, not 'clients': {remedy}.")
    return make_partitioner(data.partition, data.options, data.clients, beside=Data.model_fields)


def make_partitioner(
    name: Any, options: Mapping[str, Any], clients: int, *, beside: Iterable[str] = ()
) -> AnyPartitioner:
    """A rule by name; `beside` are keys of the same table that are not options."""
    make = lookup("partition", name, PARTITIONERS)
    what, asked = f"partition '{name}'", inspect.signature(make).parameters
    given = dict(options)
    if "partitioner" in asked:
        own, base, rest = unwrapped(make, options)
        if base is None:
            raise InvalidConfig(f"{what} needs '{BASE}', the rule it is put around, such as {BASE} = \"dirichlet\".")
        inner = make_partitioner(base, rest, clients, beside=[*beside, *asked, BASE])
        given = {**own, "partitioner": inner}
    elif "parts" in asked and PARTS in options:
        given[PARTS] = make_parts(options[PARTS], clients)
    elif "num_clients" in asked:
        given["num_clients"] = clients
    partitioner: AnyPartitioner = called(what, make, given, beside=beside)
    return partitioner


def unwrapped(make: Callable[..., Any], options: Mapping[str, Any]) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """Options of a rule that is put around another, that other's name, and its options."""
    names = set(inspect.signature(make).parameters) - NOT_IN_FILES
    own = {name: value for name, value in options.items() if name in names}
    rest = {name: value for name, value in options.items() if name not in own and name != BASE}
    return own, options.get(BASE), rest


def make_parts(given: Any, clients: int) -> list[tuple[float, AnyPartitioner]]:
    """[{share = 0.5, partition = "iid"}, ...]; a part has its share of the clients unless it says how many."""
    form = f'{PARTS} = [{{share = 0.5, partition = "iid"}}, {{share = 0.5, partition = "dirichlet", alpha = 0.1}}]'
    if not isinstance(given, list) or not all(isinstance(part, Mapping) for part in given):
        raise InvalidConfig(f"{PARTS} = {given!r}: give a list of tables, such as {form}.")
    for part in given:
        missing = {"share", "partition"} - set(part)
        if missing or not isinstance(part["share"], int | float) or not part["share"] > 0:
            raise InvalidConfig(f"A part of the mixture is {part!r}: each has a share and a partition, such as {form}.")
    counts = np.maximum(apportion(clients, np.array([float(part["share"]) for part in given])), 1)
    keys = ("share", "partition", "clients")
    made = []
    for part, count in zip(given, counts.tolist(), strict=True):
        options = {name: value for name, value in part.items() if name not in keys}
        made.append(
            (part["share"], make_partitioner(part["partition"], options, part.get("clients", count), beside=keys))
        )
    return made


def deals_to_clients(data: Data) -> bool:
    """Whether a rule deals to so many clients as it is told; natural clients are as many as they are."""
    name, options = data.partition, data.options
    make = lookup("partition", name, PARTITIONERS)
    while "partitioner" in inspect.signature(make).parameters and options.get(BASE) in PARTITIONERS:
        make, options = PARTITIONERS[options[BASE]], unwrapped(make, options)[2]
    return bool({"num_clients", "partitioner", "parts"} & set(inspect.signature(make).parameters))


def resolved_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a rule with every default that a file can say."""
    make = PARTITIONERS[name]
    defaults = {key: value for key, value in plain_defaults(make).items() if key not in NOT_IN_FILES}
    if "partitioner" in inspect.signature(make).parameters:
        _, base, rest = unwrapped(make, options)
        defaults |= resolved_options(base, rest)
    found = defaults | dict(options)
    if PARTS in options:
        found[PARTS] = [resolved_options(part["partition"], part) for part in options[PARTS]]
    return found
