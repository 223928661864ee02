"""Insert into a copy of any network, without rewriting it: adapters after layers, dropout before them.

What is inserted is a child of its layer and a hook, so the network's own parameters keep their names. Hooks are
top-level functions: copies, pickles and `torch.func.functional_call` carry them along.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.parts.layers import Adapter, named_layers, near

Globs = str | Sequence[str]
"""One pattern or several over the names of modules, such as "layer?.*.conv2"; each must match something."""
Layers = Mapping[str, nn.Module]
"""Modules of one network by name."""
Hook = Callable[[str, nn.Module, tuple[Any, ...], Any], Any]
"""(name of the adapter, layer, its inputs, its output) -> what is passed on."""


def input_dropout(module: nn.Module, *, on: Globs, rate: float) -> nn.Module:
    """A copy in which, in training mode, the first input of the chosen layers passes a dropout.

    With it the authors of FedAlt regularise personal layers (Appendix C.2). Draws are torch's global ones, as those
    of `nn.Dropout` are; no parameter and no buffer is added.
    """
    check_dropout(rate)
    result = copy.deepcopy(module)
    layers = named_layers(result)
    for path, layer in matching(result, {path: layers[path] for path in layers if path}, on, "layer").items():
        check_called(result, path)
        layer.register_forward_pre_hook(partial(drop_input, rate))
    return result


def insert(
    module: nn.Module,
    choose: Callable[[nn.Module], Layers],
    make: Callable[[nn.Module], Adapter],
    hook: Hook,
    *,
    name: str,
) -> nn.Module:
    """A copy in which each chosen layer, or the last step of it, has an adapter of that name; the hook applies it."""
    result = copy.deepcopy(module)
    places: dict[str, nn.Module] = {}
    for path, layer in choose(result).items():
        places.setdefault(last_step(result, path), layer)
    for path, layer in places.items():
        check_called(result, path)
        place = result.get_submodule(path)
        check_name(place, path, name)
        # Where its owner holds a layer in evaluation mode, the adapter is in evaluation mode too.
        place.add_module(name, make(layer).train(layer.training))
        place.register_forward_hook(partial(hook, name))
    return result


def add_to_output(name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
    """Hook: output + adapter(output); of several outputs, as attention has, the first."""
    if isinstance(output, tuple):
        return (add_to_output(name, layer, inputs, output[0]), *output[1:])
    change: Tensor = layer.get_submodule(name)(output)
    return output + change


def add_from_input(name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
    """Hook: output + adapter(input)."""
    change: Tensor = layer.get_submodule(name)(first(inputs, layer))
    return output + change


def drop_input(rate: float, layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Hook before a layer: dropout on its first input, in training mode."""
    value = first(inputs, layer)
    # Called only where it draws: under vmap, even a dropout that does nothing counts as random.
    return (F.dropout(value, rate), *inputs[1:]) if layer.training and rate > 0 else inputs


def first(inputs: tuple[Any, ...], layer: nn.Module) -> Tensor:
    if not inputs:
        raise InvalidModel(f"{type(layer).__name__} was called with keywords only. Pass its input by position.")
    value: Tensor = inputs[0]
    return value


def matching(model: nn.Module, layers: Layers, globs: Globs, kind: str) -> dict[str, nn.Module]:
    """Those of some layers whose names match any pattern; a pattern without a match is an error with near matches."""
    if not layers:
        raise InvalidModel(f"{type(model).__name__} has no {kind}.")
    chosen: dict[str, nn.Module] = {}
    for glob in [globs] if isinstance(globs, str) else globs:
        found = {path: layer for path, layer in layers.items() if fnmatchcase(path, glob)}
        if not found:
            suggestion = near(glob, list(layers), what=f"{kind}s")
            raise InvalidModel(f"The pattern '{glob}' matches no {kind} of {type(model).__name__}. {suggestion}")
        chosen |= found
    if not chosen:
        raise InvalidModel(f"No pattern was given. Name a {kind} of {type(model).__name__}: {', '.join(layers)}.")
    return {path: layer for path, layer in layers.items() if path in chosen}


def last_step(model: nn.Module, path: str) -> str:
    """The layer that gives a module's output: a Sequential would run an adapter of its own as one more step."""
    layer = model.get_submodule(path)
    if not isinstance(layer, nn.Sequential) or len(layer) == 0:
        return path
    if type(layer).forward is not nn.Sequential.forward:
        raise InvalidModel(f"'{path}' is a Sequential with a forward of its own. Name one of its layers instead.")
    last = ".".join(filter(None, [path, [name for name, _ in layer.named_children()][-1]]))
    if sum(module is layer[-1] for _, module in model.named_modules(remove_duplicate=False)) > 1:
        raise InvalidModel(f"The last layer of '{path}' is in use elsewhere too. Give each place a layer of its own.")
    return last_step(model, last)


def check_called(model: nn.Module, path: str) -> None:
    """Hooks run when a layer is called: lists never are, and attention of torch reads its projection's weight."""
    in_attention = path != "" and isinstance(model.get_submodule(path.rpartition(".")[0]), nn.MultiheadAttention)
    if in_attention or isinstance(model.get_submodule(path), nn.ModuleList | nn.ModuleDict):
        raise InvalidModel(f"'{path}' is never called, so nothing inserted there would run. Leave it out.")


def check_name(layer: nn.Module, path: str, name: str) -> None:
    if not name.isidentifier():
        raise InvalidModel(f"'{name}' cannot be the name of an adapter. Use a word such as 'shared_adapter'.")
    if hasattr(layer, name):
        raise InvalidModel(
            f"'{path}' has something called '{name}' already. Give these adapters another name, as name='{name}_2'."
        )


def check_dropout(rate: float) -> None:
    if not 0.0 <= rate < 1.0:
        raise InvalidModel(f"A dropout rate is at least 0 and below 1, not {rate}.")
