"""From an experiment file to the things it names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tomli_w
from pydantic import BaseModel
from torch import nn

from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.method import Method
from plures.core.program import Networks, OneNetwork
from plures.core.seeds import global_draws
from plures.core.types import PERSONAL
from plures.data import PARTITIONERS, SOURCES, Federation, partition
from plures.methods import METHODS, MethodInfo, find_method
from plures.models import MODELS, with_own_heads
from plures.participation import SAMPLERS, Sampler, as_sampler
from plures.parts import head
from plures.recipes.experiment import Experiment
from plures.recipes.loading import load_named, load_weights, start_from
from plures.recipes.options import ALL_OPTIMIZERS, called, lookup, method_options, plain_defaults
from plures.recipes.plan import EvaluationPlan


@dataclass(frozen=True, kw_only=True)
class Built:
    """What an experiment file names."""

    info: MethodInfo
    method: Method
    federation: Federation
    networks: Networks
    sampler: Sampler
    plan: EvaluationPlan
    configuration: str
    """The resolved configuration as TOML."""


def build(experiment: Experiment) -> Built:
    """Everything an experiment names; what is wrong with the file is an error here."""
    info = named_method(experiment.method)
    given = given_options(experiment, info)
    method = called(info.name, info.make, method_options(info, given, rounds=experiment.rounds))
    federation = build_federation(experiment)
    return Built(
        info=info,
        method=method,
        federation=federation,
        networks=build_networks(experiment, method, federation),
        sampler=build_sampler(experiment),
        plan=build_plan(experiment),
        configuration=resolved(experiment, info, given),
    )


def named_method(name: str) -> MethodInfo:
    """A method by name; "package.module:function" registers it by being imported."""
    if ":" not in name:
        return find_method(name)
    made = load_named("method", name)
    if made.__name__ not in METHODS:
        raise InvalidConfig(f"The method '{name}' is not registered. Put @register(...) of plures.methods above it.")
    return find_method(made.__name__)


def given_options(experiment: Experiment, info: MethodInfo) -> dict[str, Any]:
    """All options of the method, also those of the tables [split] and [server]."""
    parameters = inspect.signature(info.make).parameters
    options = dict(experiment.method_options)
    tables: dict[str, Any] = {
        "personal": experiment.split.personal,
        "buffers": experiment.split.buffers,
        "server": server_option(experiment),
        "weight": experiment.server.weight,
    }
    for name, value in tables.items():
        if value is None:
            continue
        if name in options:
            raise InvalidConfig(f"'{name}' is given twice, in [method_options] and in its own table. Keep one of them.")
        if name not in parameters:
            table = "[split]" if name in ("personal", "buffers") else "[server]"
            raise InvalidConfig(f"{info.name} has no choice of '{name}': remove it from {table}.")
        options[name] = value
    return options


def server_option(experiment: Experiment) -> Any:
    """A rate alone keeps the method's own rule; an optimiser replaces it."""
    table = experiment.server
    if table.optimizer is not None:
        return {"optimizer": table.optimizer, **table.options}
    for name in table.options:
        having = [rule for rule, make in ALL_OPTIMIZERS.items() if name in inspect.signature(make).parameters]
        if name != "lr" and having:
            raise InvalidConfig(f"[server] {name} needs an optimizer that has it: {', '.join(having)}.")
        if name != "lr":
            raise InvalidConfig(f"[server] has no key '{name}'. {did_you_mean(name, ['lr', *own_keys(table)])}")
    return table.options.get("lr")


def build_federation(experiment: Experiment) -> Federation:
    data = experiment.data
    if "num_clients" in data.options:
        raise InvalidConfig("[data] has no key 'num_clients'. Did you mean 'clients'?")
    source = lookup("data source", data.source, SOURCES)
    make = lookup("partition", data.partition, PARTITIONERS)
    options = {"num_clients": data.clients, **data.options}
    partitioner = called(f"partition '{data.partition}'", make, options, beside=own_keys(data))
    return partition(source(), partitioner, seed=data.seed, label_space=data.label_space, split=data.split)


def build_networks(experiment: Experiment, method: Method, federation: Federation) -> Networks:
    """One network for all; with a personal head in local label spaces, heads of K_i classes."""
    table = experiment.model
    weights = {} if table.weights is None else load_weights(table.weights)

    def make(classes: int) -> nn.Module:
        module = build_module(table.name, table.options, federation.input_shape, classes)
        return start_from(module, weights, str(table.weights))

    most = max(federation.num_classes(client) for client in range(federation.num_clients))
    with global_draws(experiment.seed, "model"):
        module = make(most)
    parts = method.split.resolve(module)
    if federation.label_space == "local" and all(parts[name] == PERSONAL for name in head()(module)):
        return with_own_heads(make, federation.num_classes)
    return OneNetwork(module=module)


def build_module(
    name: str, options: Mapping[str, Any], shape: tuple[int, ...] | None, classes: int | None
) -> nn.Module:
    """A network by name or by "package.module:function", told what the data needs if it asks."""
    make = find_model(name)
    asked = inspect.signature(make).parameters
    offered = {"shape": shape, "classes": classes}
    known = {key: value for key, value in offered.items() if key in asked and value is not None}
    module = called(f"model '{name}'", make, {**known, **options}, beside=["name", "weights"])
    if not isinstance(module, nn.Module):
        raise InvalidConfig(f"model '{name}' gave a {type(module).__name__}, not a torch module.")
    return module


def find_model(name: str) -> Callable[..., Any]:
    """A registered model, or whatever "package.module:name" stands for."""
    found: Callable[..., Any] = load_named("model", name) if ":" in name else lookup("model", name, MODELS)
    return found


def build_sampler(experiment: Experiment) -> Sampler:
    table = experiment.participation
    if table is None:
        return as_sampler(experiment.cohort)
    make = lookup("participation rule", table.rule, SAMPLERS)
    sampler: Sampler = called(f"participation '{table.rule}'", make, table.options, beside=["rule"])
    return sampler


def own_keys(table: BaseModel) -> list[str]:
    return list(type(table).model_fields)


def build_plan(experiment: Experiment) -> EvaluationPlan:
    table = experiment.evaluation
    return EvaluationPlan(
        every=table.every,
        models=None if table.models is None else tuple(table.models),
        splits=tuple(table.splits),
        post_local=table.post_local,
    )


def resolved(experiment: Experiment, info: MethodInfo, given: Mapping[str, Any]) -> str:
    """The experiment with every default written out; running it again gives the same result."""
    apart = {"out", "split", "server", "method_options"} | ({"cohort"} if experiment.participation else set())
    table = experiment.model_dump(exclude=apart, exclude_none=True)
    known = {"shape", "classes", "num_clients"}
    model, data = experiment.model, experiment.data
    table["model"] = without(plain_defaults(find_model(model.name)), known) | table["model"]
    table["data"] = without(plain_defaults(PARTITIONERS[data.partition]), known) | table["data"]
    return tomli_w.dumps(table | {"method_options": plain_defaults(info.make) | dict(given)})


def without(table: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in names}
