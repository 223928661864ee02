"""Networks made on demand, and networks whose personal part differs between clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any, cast

from torch import nn

from plures.core.errors import InvalidModel
from plures.core.networks import NetworkPerClient, Networks, OneNetwork

__all__ = ["AnyModel", "as_networks", "made_once", "per_client", "with_own_heads"]

AnyModel = nn.Module | Networks | Callable[[], nn.Module] | Callable[[int], nn.Module]
"""A module; a function that makes it, so that its initial values follow the run's seed; a function of the client."""


def as_networks(model: AnyModel) -> Networks:
    """Whatever a user gives as the model, in the form a program wants."""
    if isinstance(model, nn.Module):
        return OneNetwork(module=model)
    if hasattr(model, "key") and hasattr(model, "build"):
        return cast(Networks, model)
    if not callable(model):
        raise InvalidModel(f"A model is a torch module or a function that makes one, not a {type(model).__name__}.")
    wanted = [p for p in inspect.signature(model).parameters.values() if p.default is inspect.Parameter.empty]
    wanted = [p for p in wanted if p.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)]
    if wanted and inspect.isclass(model) and issubclass(model, nn.Module):
        names = ", ".join(p.name for p in wanted)
        raise InvalidModel(
            f"{model.__name__} is a class that needs {names}: give a module, or a function without them."
        )
    make = cast(Callable[..., Any], model)
    return per_client(make) if wanted else made_once(make)


def made_once(make: Callable[[], nn.Module]) -> NetworkPerClient:
    """One architecture for all clients, made when the run begins."""
    return NetworkPerClient(make=lambda key: make(), key_of=lambda client: 0, alike=True)


def per_client(make: Callable[[int], nn.Module]) -> NetworkPerClient:
    """Any network for any client: a function from the client's number to its module."""
    return NetworkPerClient(make=lambda key: make(as_int(key)), key_of=lambda client: client)


def with_own_heads(make: Callable[[int], nn.Module], num_classes: Callable[[int], int]) -> NetworkPerClient:
    """One body, and heads of K_i classes: a function from the number of classes to a module."""
    return NetworkPerClient(make=lambda key: make(as_int(key)), key_of=num_classes)


def as_int(key: Hashable) -> int:
    return cast(int, key)
