"""Things named in a file as "package.module:name", and weights to start from."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.types import Params


def load_named(what: str, path: str) -> Callable[..., Any]:
    """The function or class that "package.module:name" stands for."""
    module_name, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidConfig(f"Cannot load the {what} '{path}': {error}. Give it as package.module:function.") from error
    if not callable(found):
        raise InvalidConfig(f"The {what} '{path}' is a {type(found).__name__}, not a function or class.")
    return cast(Callable[..., Any], found)


def load_weights(path: str) -> Params:
    """The tensors of a safetensors file."""
    try:
        return load_file(Path(path))
    except (OSError, SafetensorError) as error:
        raise InvalidConfig(f"Cannot read the weights in {path}: {error}. Give a safetensors file.") from error


def start_from(module: nn.Module, weights: Params, path: str) -> nn.Module:
    """Put weights into a network, by name; what the file lacks stays as it is, all else must fit."""
    known = module.state_dict()
    problems = [
        f"{path} has '{name}' of shape {tuple(value.shape)}, "
        + (f"the network one of {tuple(known[name].shape)}." if name in known else "which the network has not.")
        for name, value in weights.items()
        if name not in known or known[name].shape != value.shape
    ]
    if problems:
        raise InvalidModel(problems)
    with torch.no_grad():
        for name, value in weights.items():
            known[name].copy_(value)
    return module
