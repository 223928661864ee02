"""Ways to name parameters of any module: by pattern, by role, and by combining those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn

from plures.core.errors import InvalidSplit, did_you_mean
from plures.parts.layers import (
    CONVOLUTIONS,
    NORMS,
    Adapter,
    in_shortcut,
    layers_with_parameters,
    names_of,
    near,
    parameters_under,
    repeated_blocks,
    tied_names,
)

Names = frozenset[str]


@dataclass(frozen=True)
class Selector:
    """Chooses parameters of a module; combine with `|` (either), `&` (both) and `-` (without)."""

    description: str
    find: Callable[[nn.Module], Names]
    words: list[str] | None = None
    """Patterns, or patterns and roles, that say the same."""

    def __call__(self, model: nn.Module) -> Names:
        return self.find(model)

    def __or__(self, other: Selector) -> Selector:
        words = self.in_file(), other.in_file()
        both = None if words[0] is None or words[1] is None else [*words[0], *words[1]]
        return Selector(f"{self} | {other}", lambda model: self(model) | other(model), both)

    def __and__(self, other: Selector) -> Selector:
        return Selector(f"{self} & {other}", lambda model: self(model) & other(model))

    def __sub__(self, other: Selector) -> Selector:
        return Selector(f"{self} - ({other})", lambda model: self(model) - other(model))

    def in_file(self) -> list[str] | None:
        """As a file says it: roles and patterns; None for what only code can say."""
        if self.words is not None:
            return self.words
        role = self.description.removesuffix("()")
        return [role] if role in ROLES and role != self.description else None

    def __str__(self) -> str:
        return self.description


def patterns(*globs: str) -> Selector:
    """Parameters whose names match any glob, such as "head.*" or "*.norm?.weight"."""
    found = lambda model: frozenset().union(*(matches(model, glob) for glob in globs))  # noqa: E731
    return Selector(", ".join(globs), found, list(globs))


def head() -> Selector:
    """The last layer with parameters, in the order the module registers them."""
    return Selector("head()", lambda model: frozenset(layers_with_parameters(model)[-1].names))


def first_layer() -> Selector:
    """The first layer with parameters, in the order the module registers them."""
    return Selector("first_layer()", lambda model: frozenset(layers_with_parameters(model)[0].names))


def input_layer() -> Selector:
    """The first layer and the norm right after it: the stem of a convolutional network, the first linear layer."""
    return Selector("input_layer()", input_names)


def output_layer() -> Selector:
    """The same as `head()`, in the words of "Federated Learning with Partial Model Personalization"."""
    return Selector("output_layer()", head().find)


def first_block() -> Selector:
    """The first of the blocks that a network repeats: the input layer of a transformer."""
    return Selector("first_block()", lambda model: parameters_under(model, blocks(model, "first_block()")[0]))


def last_block() -> Selector:
    """The last of the blocks that a network repeats: the output layer of a transformer."""
    return Selector("last_block()", lambda model: parameters_under(model, blocks(model, "last_block()")[-1]))


def adapters(name: str = "adapter") -> Selector:
    """Every parameter under a child of that name; none in the network is an error."""
    description = "adapters()" if name == "adapter" else f"adapters({name!r})"
    return Selector(description, lambda model: adapter_names(model, name))


def adapters_and_norms(name: str = "adapter") -> Selector:
    """Adapters and the network's own norms, but for those in shortcuts: what FedAlt's paper calls adapters."""
    description = "adapters_and_norms()" if name == "adapter" else f"adapters_and_norms({name!r})"
    return Selector(description, lambda model: adapter_names(model, name) | main_norms(model))


def personal_branch() -> Selector:
    """The child called `personal`, and `mixing` if there is one: of additive models and of split inputs."""
    return Selector("personal_branch()", branch_names)


def norms() -> Selector:
    """Scales and shifts of every normalisation layer outside of adapters; none in the network is an error."""
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
    "output_layer": output_layer,
    "first_layer": first_layer,
    "input_layer": input_layer,
    "first_block": first_block,
    "last_block": last_block,
    "adapters": adapters,
    "adapters_and_norms": adapters_and_norms,
    "personal_branch": personal_branch,
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


def matches(model: nn.Module, glob: str) -> Names:
    names = names_of(model)
    found = frozenset(name for name in names if fnmatchcase(name, glob))
    for alias, name in tied_names(model).items():
        if fnmatchcase(alias, glob) and name not in found:
            raise InvalidSplit(
                f"'{alias}', which the pattern '{glob}' matches, is tied to '{name}', which it does not match. "
                "Match both, neither, or untie them."
            )
    if not found:
        layers = sorted({name.rsplit(".", 1)[0] + ".*" for name in names if "." in name})
        suggestion = near(glob, names, others=layers)
        raise InvalidSplit(f"The pattern '{glob}' matches no parameter of {type(model).__name__}. {suggestion}")
    return found


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
    names = names_of(model)
    # By place in the list, so that adapters go with the layers they are attached to.
    return frozenset(names[: names.index(layers[min(end, len(layers) - 1)].names[0])])


def input_names(model: nn.Module) -> Names:
    layers = layers_with_parameters(model)
    is_norm = [isinstance(layer.module, NORMS) for layer in layers] + [False]
    first = is_norm.index(False)
    end = first + 2 if is_norm[first + 1 : first + 2] == [True] else first + 1
    return frozenset(name for layer in layers[:end] for name in layer.names)


def blocks(model: nn.Module, role: str) -> list[str]:
    found = repeated_blocks(model)
    if not found:
        raise InvalidSplit(
            f"{type(model).__name__} repeats no block, so {role} selects nothing. Blocks are elements of "
            "nn.ModuleList or nn.Sequential, of one class and with layers of their own. Name the part by a pattern."
        )
    return found


def adapter_names(model: nn.Module, name: str) -> Names:
    found = frozenset(parameter for parameter in names_of(model) if name in parameter.split(".")[:-1])
    if not found:
        others = {path.rpartition(".")[2] for path, module in model.named_modules() if isinstance(module, Adapter)}
        remedy = did_you_mean(name, others) if others else "conv_adapters, bottleneck_adapters and lora insert some."
        raise InvalidSplit(f"{type(model).__name__} has no parameters under a child called '{name}'. {remedy}")
    return found


def main_norms(model: nn.Module) -> Names:
    """Norms of the network itself, without those in the side branches of residual blocks."""
    layers = [layer for layer in layers_with_parameters(model) if isinstance(layer.module, NORMS)]
    return frozenset(name for layer in layers for name in layer.names if not in_shortcut(name))


def branch_names(model: nn.Module) -> Names:
    found = parameters_under(model, "personal")
    if not found:
        raise InvalidSplit(
            f"{type(model).__name__} has no parameters under a child called 'personal'. "
            "personal_branch() is for networks made by additive and split_input."
        )
    return found | ({"mixing"} & set(names_of(model)))
