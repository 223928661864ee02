"""Twins: a second set of parameters, kept by the client, that the network can be made to see."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from plures.core.errors import InvalidModel
from plures.core.networks import Network
from plures.core.types import PERSONAL, Params, Part, is_constant

__all__ = ["original", "twin", "twin_of", "with_twin"]

PREFIX = "twin."


def twin_of(name: str) -> str:
    """The name of a parameter's twin."""
    return PREFIX + name


def with_twin(network: Network) -> Mapping[Part, Params]:
    """The extension that gives every parameter that may move a personal twin, equal to it at the start."""
    params, parts = network.params, network.parts
    taken = [name for name in parts if name.startswith(PREFIX)]
    if taken:
        raise InvalidModel(f"the model has '{taken[0]}', but '{PREFIX}' names twins. Rename that module.")
    moving = {name: value for name, value in params.items() if not is_constant(parts[name])}
    return {PERSONAL: {twin_of(name): value.detach().clone() for name, value in moving.items()}}


def twin(params: Params, inputs: Tensor) -> Params:
    """The network sees the twins, and the original of what has no twin (running statistics)."""
    twins = {name.removeprefix(PREFIX): value for name, value in params.items() if name.startswith(PREFIX)}
    return original(params, inputs) | twins


def original(params: Params, inputs: Tensor) -> Params:
    """The network sees its own parameters, no twins."""
    return {name: value for name, value in params.items() if not name.startswith(PREFIX)}
