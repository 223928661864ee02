"""Ways to name parameters of any module: by pattern, by role, and by combining those."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from torch import nn

from plures.core.errors import InvalidSplit

Names = frozenset[str]


@dataclass(frozen=True)
class Selector:
    """Chooses parameters of a module; combine with `|` (either), `&` (both) and `-` (without)."""

    description: str
    find: Callable[[nn.Module], Names]

    def __call__(self, model: nn.Module) -> Names:
        return self.find(model)

    def __or__(self, other: Selector) -> Selector:
        return Selector(f"{self} | {other}", lambda model: self(model) | other(model))

    def __and__(self, other: Selector) -> Selector:
        return Selector(f"{self} & {other}", lambda model: self(model) & other(model))

    def __sub__(self, other: Selector) -> Selector:
        return Selector(f"{self} - ({other})", lambda model: self(model) - other(model))

    def __str__(self) -> str:
        return self.description


def patterns(*globs: str) -> Selector:
    """Parameters whose names match any glob, such as "head.*" or "*.norm?.weight"."""
    return Selector(", ".join(globs), lambda model: frozenset().union(*(matches(model, glob) for glob in globs)))


def head() -> Selector:
    """The last layer with parameters, in the order the module registers them."""
    return Selector("head()", lambda model: frozenset(layers_with_parameters(model)[-1].names))


def first_layer() -> Selector:
    """The first layer with parameters, in the order the module registers them."""
    return Selector("first_layer()", lambda model: frozenset(layers_with_parameters(model)[0].names))


def norms() -> Selector:
    """Scales and shifts of every normalisation layer; none in the network is an error."""
    return Selector("norms()", normalisation_names)


def representation() -> Selector:
    """What comes before the classifier: all up to the last convolution and its norm, or else all but the head."""
    return Selector("representation()", representation_names)


def all_shared() -> Selector:
    """No parameter: as the personal part, it leaves everything shared."""
    return Selector("all_shared()", lambda model: frozenset())


def all_personal() -> Selector:
    """Every parameter: as the personal part, it leaves nothing shared."""
    return Selector("all_personal()", lambda model: frozenset(names_of(model)))


ROLES: dict[str, Callable[[], Selector]] = {
    "head": head,
    "first_layer": first_layer,
    "norms": norms,
    "representation": representation,
    "all_shared": all_shared,
    "all_personal": all_personal,
}


def as_selector(value: Selector | str | Sequence[str]) -> Selector:
    """A selector, the name of a role such as "head", a glob, or a list of those."""
    if isinstance(value, Selector):
        return value
    words = [value] if isinstance(value, str) else list(value)
    if not words:
        return all_shared()
    selectors = [
        ROLES[word.removesuffix("()")]() if word.removesuffix("()") in ROLES else patterns(word) for word in words
    ]
    chosen = selectors[0]
    for selector in selectors[1:]:
        chosen = chosen | selector
    return chosen


def names_of(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


def matches(model: nn.Module, glob: str) -> Names:
    names = names_of(model)
    found = frozenset(name for name in names if fnmatchcase(name, glob))
    if not found:
        raise InvalidSplit(f"The pattern '{glob}' matches no parameter of {type(model).__name__}. {near(glob, names)}")
    return found


def near(glob: str, names: Sequence[str]) -> str:
    """What the writer of a pattern may have meant: layers and parameters with names like it."""
    layers = {name.rsplit(".", 1)[0] + ".*" for name in names if "." in name}
    candidates = sorted(layers) + list(names)
    close = difflib.get_close_matches(glob, candidates, n=3, cutoff=0.4)
    if close:
        return "Near matches: " + ", ".join(f"'{name}'" for name in close) + "."
    return "Its parameters: " + ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") + "."


NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
CONVOLUTIONS = (nn.modules.conv._ConvNd,)


def normalisation_names(model: nn.Module) -> Names:
    found = [name for layer in layers_with_parameters(model) if isinstance(layer.module, NORMS) for name in layer.names]
    if not found:
        raise InvalidSplit(
            f"{type(model).__name__} has no normalisation layer with parameters, so norms() selects nothing. "
            "Use a network with such layers, or name another part."
        )
    return frozenset(found)


def representation_names(model: nn.Module) -> Names:
    layers = layers_with_parameters(model)
    convolutions = [place for place, layer in enumerate(layers) if isinstance(layer.module, CONVOLUTIONS)]
    end = convolutions[-1] + 1 if convolutions else len(layers) - 1
    if convolutions and end < len(layers) and isinstance(layers[end].module, NORMS):
        end += 1
    return frozenset(name for layer in layers[: min(end, len(layers) - 1)] for name in layer.names)


class Layer(NamedTuple):
    """A module with parameters of its own."""

    module: nn.Module
    names: list[str]


def layers_with_parameters(model: nn.Module) -> list[Layer]:
    """Every layer that has parameters of its own, in order of registration."""
    known = set(names_of(model))
    layers = []
    for prefix, module in model.named_modules():
        names = [name for name, _ in module.named_parameters(prefix, recurse=False) if name in known]
        if names:
            layers.append(Layer(module, names))
    if not layers:
        raise InvalidSplit(f"{type(model).__name__} has no parameters: there is nothing to train.")
    return layers
