"""From an experiment file to the things it names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial as bound
from typing import Any

import tomli_w
from torch import nn

from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.method import Method
from plures.core.program import Networks, OneNetwork
from plures.core.seeds import global_draws
from plures.core.types import PERSONAL
from plures.data import PARTITIONERS, SOURCES, Federation, partition
from plures.methods import MethodInfo, find_method
from plures.models import MODELS, with_own_heads
from plures.participation import SAMPLERS, Sampler, as_sampler
from plures.parts import head
from plures.recipes.experiment import Experiment
from plures.recipes.options import called, lookup, method_options, resolved_options
from plures.recipes.recorder import EvaluationPlan


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
    info = find_method(experiment.method)
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
    unknown = [name for name in table.options if name != "lr"]
    if unknown:
        raise InvalidConfig(
            f"[server] {unknown[0]} needs an optimizer. {did_you_mean(unknown[0], ('optimizer', 'lr'))}"
        )
    return table.options.get("lr")


def build_federation(experiment: Experiment) -> Federation:
    data = experiment.data
    source = lookup("data source", data.source, SOURCES)
    make = lookup("partition", data.partition, PARTITIONERS)
    partitioner = called(f"partition '{data.partition}'", make, {"num_clients": data.clients, **data.options})
    return partition(source(), partitioner, seed=data.seed, label_space=data.label_space, split=data.split)


def build_networks(experiment: Experiment, method: Method, federation: Federation) -> Networks:
    """One network for all; with a personal head in local label spaces, heads of K_i classes."""
    make = bound(build_module, experiment.model.name, experiment.model.options, federation.input_shape)
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
    module = called(f"model '{name}'", make, {**known, **options})
    if not isinstance(module, nn.Module):
        raise InvalidConfig(f"model '{name}' gave a {type(module).__name__}, not a torch module.")
    return module


def find_model(name: str) -> Callable[..., Any]:
    if ":" not in name:
        found: Callable[..., Any] = lookup("model", name, MODELS)
        return found
    module_name, _, attribute = name.partition(":")
    try:
        made: Callable[..., Any] = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidConfig(f"Cannot load the model '{name}': {error}. Give it as package.module:function.") from error
    return made


def build_sampler(experiment: Experiment) -> Sampler:
    rule = experiment.participation
    if rule is None:
        return as_sampler(experiment.cohort)
    sampler: Sampler = called(
        f"participation '{rule.rule}'", lookup("participation rule", rule.rule, SAMPLERS), rule.options
    )
    return sampler


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
    table = experiment.model_dump(exclude={"out", "split", "server", "method_options"}, exclude_none=True)
    return tomli_w.dumps(table | {"method_options": resolved_options(info, given)})
