"""The networks an experiment names: built, given adapters and personal dropout, and started from weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from plures.core.errors import InvalidConfig
from plures.core.method import Method
from plures.core.networks import Networks, OneNetwork
from plures.core.seeds import global_draws
from plures.core.types import PERSONAL, Params
from plures.data import Federation
from plures.data.joining import Everyone
from plures.models import MODELS, with_own_heads
from plures.parts import bottleneck_adapters, conv_adapters, head, input_dropout, lora
from plures.recipes.experiment import Experiment, Model
from plures.recipes.loading import load_named
from plures.recipes.options import called, lookup
from plures.recipes.warm_start import Matching, load_weights, start_from

ADAPTERS: dict[str, Callable[..., nn.Module]] = {
    "conv": conv_adapters,
    "bottleneck": bottleneck_adapters,
    "lora": lora,
}


def build_networks(
    experiment: Experiment, method: Method, federation: Federation | Everyone, weights: Params | None = None
) -> tuple[Networks, Matching | None]:
    """One network for all; with a personal head in local label spaces, heads of K_i classes."""
    table = experiment.model
    if weights is None and table.weights is not None:
        weights = load_weights(table.weights)
    most = max(federation.num_classes(client) for client in range(federation.num_clients))
    with global_draws(experiment.seed, "model"):
        module, matching = build_started(table, weights, federation.input_shape, most)
    if federation.label_space == "local" and has_own_head(method, module):
        # Heads of K_i classes take what fits of a model of all classes, and are fresh elsewhere.
        loose = table.model_copy(update={"match": "loose"})
        make = lambda classes: build_started(loose, weights, federation.input_shape, classes)[0]  # noqa: E731
        return with_own_heads(make, federation.num_classes), matching
    again = lambda: build_started(table, weights, federation.input_shape, most)[0]  # noqa: E731
    return OneNetwork(module=module, make=again), matching


def has_own_head(method: Method, module: nn.Module) -> bool:
    """Whether the last layer stays with each client; a network that a method builds around this one has no say."""
    if method.wrap is not None:
        return False
    parts = method.split.resolve(module)
    return all(parts[name] == PERSONAL for name in head()(module))


def build_started(
    table: Model, weights: Params | None, shape: tuple[int, ...], classes: int
) -> tuple[nn.Module, Matching | None]:
    """The network with its adapters; first values are drawn, then replaced by weights where there are some."""
    module = build_module(table.name, table.options, shape, classes)
    module = with_adapters(module, table.adapters)
    if table.input_dropout is not None:
        module = called("input_dropout", input_dropout, {"module": module, **table.input_dropout})
    return (
        (module, None)
        if weights is None
        else start_from(module, weights, table.weights or "the shared model", table.match)
    )


def with_adapters(module: nn.Module, wanted: str | Mapping[str, Any] | None) -> nn.Module:
    """Adapters by kind ("conv", "bottleneck", "lora"), or a table with the kind and its options."""
    if wanted is None:
        return module
    options = {"kind": wanted} if isinstance(wanted, str) else dict(wanted)
    kind = options.pop("kind", None)
    make = lookup("kind of adapters", kind, ADAPTERS)
    adapted: nn.Module = called(f"adapters '{kind}'", make, {"module": module, **options})
    return adapted


def build_module(
    name: str, options: Mapping[str, Any], shape: tuple[int, ...] | None, classes: int | None
) -> nn.Module:
    """A network by name or by "package.module:function", told what the data needs if it asks."""
    make = find_model(name)
    asked = inspect.signature(make).parameters
    offered = {"shape": shape, "classes": classes}
    known = {key: value for key, value in offered.items() if key in asked and value is not None}
    module = called(f"model '{name}'", make, {**known, **options}, beside=list(Model.model_fields))
    if not isinstance(module, nn.Module):
        raise InvalidConfig(f"model '{name}' gave a {type(module).__name__}, not a torch module.")
    return module


def find_model(name: str) -> Callable[..., Any]:
    """A registered model, or whatever "package.module:name" stands for."""
    found: Callable[..., Any] = load_named("model", name) if ":" in name else lookup("model", name, MODELS)
    return found
