"""From an experiment file to the things it names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tomli_w
from pydantic import BaseModel

from plures.core.context import Conduct
from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.method import Method
from plures.core.networks import Networks
from plures.core.types import Params
from plures.data import Federation
from plures.data.joining import everyone
from plures.methods import METHODS, MethodInfo, find_method
from plures.participation import SAMPLERS, Sampler, as_sampler
from plures.recipes.experiment import Experiment, GuardTable
from plures.recipes.fault_tables import make_conduct, over_selecting
from plures.recipes.federations import build_federation, resolved_data, without_newcomers
from plures.recipes.loading import load_named
from plures.recipes.networks import build_networks, find_model
from plures.recipes.options import ALL_OPTIMIZERS, called, lookup, method_options
from plures.recipes.plain import plain_defaults
from plures.recipes.plan import EvaluationPlan, GuardPlan
from plures.recipes.warm_start import Matching
from plures.server.robust import as_summing
from plures.wire import Codec


@dataclass(frozen=True, kw_only=True)
class Built:
    """What an experiment file names."""

    info: MethodInfo
    method: Method
    federation: Federation
    """Those that take part."""
    newcomers: Federation | None
    """Those that are held out."""
    networks: Networks
    matching: Matching | None
    """What of the weights to start from went where."""
    sampler: Sampler
    plan: EvaluationPlan
    configuration: str
    """The resolved configuration as TOML."""


def build(experiment: Experiment, weights: Params | None = None, whole: Federation | None = None) -> Built:
    """Everything an experiment names, its network started from weights if some are given.

    `whole` is the federation of the experiment's table [data], where that was built before.
    """
    info = named_method(experiment.method)
    given = given_options(experiment, info)
    method = called(info.name, info.make, method_options(info, given, rounds=max(experiment.rounds, 1)))
    federation, newcomers = without_newcomers(experiment, whole or build_federation(experiment))
    networks, matching = build_networks(experiment, method, everyone(federation, newcomers), weights)
    return Built(
        info=info,
        method=method,
        federation=federation,
        newcomers=newcomers,
        networks=networks,
        matching=matching,
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


def build_sampler(experiment: Experiment) -> Sampler:
    """Who is called; more than are wanted, if so asked."""
    table = experiment.participation
    if table is None:
        return over_selecting(as_sampler(experiment.cohort), experiment.tolerate)
    make = lookup("participation rule", table.rule, SAMPLERS)
    sampler: Sampler = called(f"participation '{table.rule}'", make, table.options, beside=["rule"])
    return over_selecting(sampler, experiment.tolerate)


def build_conduct(experiment: Experiment) -> Conduct:
    """What a round bears, what goes wrong on purpose, and how uploads are summed."""
    conduct = make_conduct(experiment.faults, experiment.tolerate)
    return replace(conduct, new_sum=as_summing(experiment.server.robust))


def build_wire(experiment: Experiment) -> Codec:
    """The wire of a file; a code that there is not is refused by it."""
    return Codec(upload=experiment.wire.upload, download=experiment.wire.download)  # type: ignore[arg-type]


def own_keys(table: BaseModel) -> list[str]:
    return list(type(table).model_fields)


def build_plan(experiment: Experiment) -> EvaluationPlan:
    table = experiment.evaluation
    return EvaluationPlan(
        every=table.every,
        models=tuple(table.models) if isinstance(table.models, list) else table.models,
        splits=tuple(table.splits),
        metrics=tuple(table.metrics),
        targets=tuple(table.targets),
        post_local=table.post_local,
        guard=build_guard(table.guard),
        diagnostics=table.diagnostics,
    )


def build_guard(given: bool | GuardTable) -> GuardPlan | None:
    if isinstance(given, bool):
        return GuardPlan() if given else None
    return GuardPlan(margin=given.margin, against=given.against)


def configuration_of(experiment: Experiment) -> str:
    """The resolved configuration as TOML, without building anything."""
    info = named_method(experiment.method)
    return resolved(experiment, info, given_options(experiment, info))


def resolved(experiment: Experiment, info: MethodInfo, given: Mapping[str, Any]) -> str:
    """The experiment with every default written out; running it again gives the same result."""
    apart = {"out", "track", "tune", "deploy", "split", "server", "method_options"}
    apart |= {"cohort"} if experiment.participation else set()
    table = experiment.model_dump(exclude=apart, exclude_none=True)
    known = {"shape", "classes"}
    table["model"] = without(plain_defaults(find_model(experiment.model.name)), known) | table["model"]
    table["data"] = resolved_data(experiment.data)
    if experiment.server.robust is not None:
        table["server"] = {"robust": experiment.server.robust}
    return as_toml(table | {"method_options": plain_defaults(info.make) | dict(given)})


def as_toml(table: Mapping[str, Any]) -> str:
    """For a file; values from Python need not be such as can stand there."""
    try:
        text = tomli_w.dumps(table)
        text.encode("utf-8")
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidConfig(
            f"The experiment cannot be written as TOML: {error}. Give numbers, texts, lists and tables; leave out what "
            "is None."
        ) from error


def without(table: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in names}
