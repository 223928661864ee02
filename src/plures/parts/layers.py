"""What a network is made of: its layers in order, its norms and convolutions, its repeated blocks, its adapters."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from plures.core.errors import InvalidSplit

NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
CONVOLUTIONS = (nn.modules.conv._ConvNd,)
CONTAINERS = (nn.Sequential, nn.ModuleList)
SHORTCUTS = ("downsample", "shortcut", "skip")
"""What the side branch of a residual block is called; its layers only change sizes."""


class Adapter(nn.Module):
    """A small network that was inserted after a layer of another one. Roles such as the head never mean it."""


class Layer(NamedTuple):
    """A module with parameters of its own."""

    module: nn.Module
    names: list[str]


def names_of(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


def named_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Every module inside the model by name, without adapters and what is in them."""
    inserted = tuple(name + "." for name, module in model.named_modules() if isinstance(module, Adapter))
    return {name: module for name, module in model.named_modules() if not (name + ".").startswith(inserted)}


def layers_with_parameters(model: nn.Module) -> list[Layer]:
    """Every layer that has parameters of its own, in order of registration; adapters are left out."""
    known = set(names_of(model))
    layers = []
    for prefix, module in named_layers(model).items():
        names = [name for name, _ in module.named_parameters(prefix, recurse=False) if name in known]
        if names:
            layers.append(Layer(module, names))
    if not layers:
        raise InvalidSplit(f"{type(model).__name__} has no parameters: there is nothing to train.")
    return layers


def parameters_under(model: nn.Module, prefix: str) -> frozenset[str]:
    """The parameters of one module inside the model and of all that it contains."""
    return frozenset(name for name in names_of(model) if name.startswith(prefix + "."))


def in_shortcut(name: str) -> bool:
    """Whether a module or parameter is in the side branch of a residual block, by its name."""
    return any(word in SHORTCUTS for word in name.split("."))


def repeated_blocks(model: nn.Module) -> list[str]:
    """Names of the blocks a network repeats, in order: the layers of a transformer, the residual blocks of a ResNet.

    A block is an element of a ModuleList or Sequential that has layers of its own and is of a class met twice at
    least. Blocks of blocks: classes of their own come before plain containers, then the outer block before the inner.
    """
    layers = named_layers(model)
    found = {name: module for name, module in layers.items() if is_element(name, layers) and is_composite(name, layers)}
    counts = Counter(type(module) for module in found.values())
    repeated = [name for name, module in found.items() if counts[type(module)] > 1]
    named = [name for name in repeated if not isinstance(found[name], CONTAINERS)]
    outer: list[str] = []
    for name in named or repeated:
        if not name.startswith(tuple(block + "." for block in outer)):
            outer.append(name)
    return outer


def is_element(name: str, layers: dict[str, nn.Module]) -> bool:
    return name != "" and isinstance(layers[name.rpartition(".")[0]], CONTAINERS)


def is_composite(name: str, layers: dict[str, nn.Module]) -> bool:
    """Whether there are parameters deeper inside than those of the module itself."""
    inner = [module for other, module in layers.items() if other.startswith(name + ".")]
    return any(True for module in inner for _ in module.parameters(recurse=False))


def near(glob: str, names: Sequence[str], *, what: str = "parameters", others: Sequence[str] = ()) -> str:
    """What the writer of a pattern may have meant: names, or other patterns, like it; or else what there is."""
    close = difflib.get_close_matches(glob, [*others, *names], n=3, cutoff=0.4)
    if close:
        return "Near matches: " + ", ".join(f"'{name}'" for name in close) + "."
    return f"Its {what}: " + ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") + "."


def tied_names(model: nn.Module) -> dict[str, str]:
    """Further names of parameters that are used in two places, with the name each is known by."""
    known = {id(value): name for name, value in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {name: known[id(value)] for name, value in every if known[id(value)] != name}
