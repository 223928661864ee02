"""Narrower networks inside a network: the first channels of every layer, as HeteroFL (Diao et al. 2021) slices them."""

from __future__ import annotations

import copy
from functools import partial
from math import ceil, isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from plures.core.errors import InvalidConfig, InvalidModel
from plures.parts.layers import CONVOLUTIONS, NORMS, named_layers, names_of

ROUND_OFF = 1e-12
"""Relative error that products of floating-point numbers may have: 0.07 * 100 is 7.000000000000001."""

PRODUCTS = (*CONVOLUTIONS, nn.Linear)
TRANSPOSED = (nn.modules.conv._ConvTransposeNd,)
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
PER_CHANNEL = (*NORMS, nn.PReLU)


class Ends(NamedTuple):
    """How many inputs and outputs a convolution or linear layer has, and in how many groups."""

    inputs: int
    outputs: int
    groups: int


def kept(size: int, width: float) -> int:
    """How many of so many channels a network of that width has: rounded up, errors of floating point apart."""
    if not isfinite(width) or not 0.0 < width <= 1.0:
        raise InvalidConfig(f"A width is the share of channels that are kept: above 0 and at most 1, not {width!r}.")
    return min(size, max(1, ceil(width * size * (1.0 - ROUND_OFF))))


def slices(module: nn.Module, width: float) -> dict[str, Tensor]:
    """For each parameter which entries a network of that width has. Of two widths the smaller is inside the larger.

    An entry is kept if its output and its input are. Layers are followed in the order in which the module registers
    them: a layer's inputs are the outputs of the layer before it, or of an earlier one of the same size. The first
    layer keeps all its inputs and the output layer all its outputs. Adapters are cut like other layers; those in the
    output layer stay whole, as its outputs do.

    With all other entries zero, the network computes what a network of the smaller widths does. But a group norm whose
    group is cut, and a layer norm, still take their means over the zeros of channels that are left out, and the scores
    of attention are still divided by its full width.
    """
    masks = Walk(module, width).masks
    return {name: masks[name] for name in names_of(module)}


def sizes(module: nn.Module, width: float) -> dict[str, int]:
    """How many entries of each parameter a network of that width has."""
    return {name: int(mask.sum()) for name, mask in slices(module, width).items()}


def hidden_layers(module: nn.Module) -> frozenset[str]:
    """Weights and biases of all convolutions and linear layers but the output layer: HeteroFL scales their outputs."""
    output = output_path(module)
    layers = [layer for path, layer in layers_of(module).items() if not within(path, output)]
    own = {id(value) for layer in layers if isinstance(layer, PRODUCTS) for value in own_parameters(layer).values()}
    return frozenset(name for name, value in module.named_parameters() if id(value) in own)


def check_slices(module: nn.Module, width: float, inputs: Tensor) -> None:
    """Refuse a network in which something comes to a layer at a place that the narrower layer leaves out.

    So it is if layers are registered in another order than used, or if several outputs are put side by side. Found by
    a forward pass of a few different examples in a copy: only channels that are kept may differ between them.
    """
    walk, network = Walk(module, width), copy.deepcopy(module).eval()
    lost: dict[str, None] = {}

    def look(path: str, layer: nn.Module, given: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        value = given[0] if given else keywords["input"]
        moving = (value != value[:1]).movedim(-1 if isinstance(layer, nn.Linear) else 1, 0).flatten(1).any(1)
        if bool((moving & ~walk.inputs[path]).any()):
            lost[path] = None

    for path in walk.inputs:
        network.get_submodule(path).register_forward_pre_hook(partial(look, path), with_kwargs=True)
    with torch.no_grad():
        for name, value in network.named_parameters():
            value.mul_(walk.masks[name])
        network(inputs)
    if lost:
        raise InvalidModel(
            f"{type(module).__name__} cannot be sliced to width {width}: "
            f"{', '.join(repr(path) for path in lost)} would leave out what comes from layers before. "
            "Register layers in the order in which they are used, each taking the outputs of one layer before it."
        )


class Walk:
    """Goes through the layers in order and remembers which channels each takes and passes on."""

    def __init__(self, module: nn.Module, width: float) -> None:
        check_layers(module)
        self.module, self.width, self.output = module, width, output_path(module)
        self.names = {id(value): name for name, value in module.named_parameters()}
        self.passed: list[tuple[nn.Module, Tensor]] = []
        self.inputs: dict[str, Tensor] = {}
        self.masks: dict[str, Tensor] = {}
        for path, layer in layers_of(module).items():
            found = self.visit(path, layer)
            for name, value in own_parameters(layer).items():
                self.keep(path, self.names[id(value)], found[name])

    def visit(self, path: str, layer: nn.Module) -> dict[str, Tensor]:
        if within(path, self.output) and path != self.output:
            return {name: torch.ones_like(value, dtype=torch.bool) for name, value in own_parameters(layer).items()}
        if isinstance(layer, PRODUCTS):
            return self.product(path, layer)
        if isinstance(layer, EMBEDDINGS):
            return self.embedding(layer)
        return {name: self.per_channel(path, layer, value) for name, value in own_parameters(layer).items()}

    def product(self, path: str, layer: nn.Module) -> dict[str, Tensor]:
        ends = ends_of(layer)
        inputs = self.inputs[path] = self.taken(path, layer, ends.inputs)
        count = kept(ends.outputs, self.width)
        if ends.groups > 1:  # whole groups: with one channel a group, they are the channels that come to the layer
            count = kept(ends.groups, self.width) * (ends.outputs // ends.groups)
        outputs = leading(ends.outputs, ends.outputs if path == self.output else count, inputs)
        self.passed.append((layer, outputs))
        return {"weight": pairs(layer, outputs, inputs, ends.groups), "bias": outputs}

    def embedding(self, layer: nn.Embedding | nn.EmbeddingBag) -> dict[str, Tensor]:
        """Every word, and the first of the dimensions."""
        channels = leading(layer.embedding_dim, kept(layer.embedding_dim, self.width), layer.weight)
        self.passed.append((layer, channels))
        return {"weight": channels.expand_as(layer.weight).clone()}

    def per_channel(self, path: str, layer: nn.Module, value: Tensor) -> Tensor:
        """Norms have a scale and a shift for each channel of what comes to them; PReLU may have a single slope."""
        single = isinstance(layer, nn.PReLU) and len(value) == 1
        return torch.ones_like(value, dtype=torch.bool) if single else self.taken(path, layer, len(value)).clone()

    def taken(self, path: str, layer: nn.Module, size: int) -> Tensor:
        """Which of so many inputs of a layer are there."""
        if not self.passed:
            return leading(size, size, next(layer.parameters()))
        same = [outputs for _, outputs in self.passed if len(outputs) == size]
        before, mask = self.passed[-1]
        if not isinstance(layer, CONVOLUTIONS) and size % len(mask) == 0 and (isinstance(layer, nn.Linear) or not same):
            if isinstance(before, CONVOLUTIONS):  # flattened pictures: the places of a channel are side by side
                return mask.repeat_interleave(size // len(mask))
            if isinstance(before, EMBEDDINGS):  # flattened texts: the channels of a word are side by side
                return mask.repeat(size // len(mask))
        if not same:
            raise InvalidModel(
                f"'{path}' of {type(self.module).__name__} has {size} inputs, but no layer before it has as many "
                "outputs, so nobody can tell which of them a narrower network has. Register layers in the order in "
                "which they are used, each taking the outputs of one layer before it."
            )
        return same[-1]

    def keep(self, path: str, name: str, mask: Tensor) -> None:
        """A parameter with two places, such as an embedding that is the output layer too, is cut once."""
        if not torch.equal(self.masks.setdefault(name, mask), mask):
            raise InvalidModel(
                f"'{name}' of {type(self.module).__name__} is in use in '{path}' too, where other entries of it would "
                "be kept. Give the two layers parameters of their own."
            )


def pairs(layer: nn.Module, outputs: Tensor, inputs: Tensor, groups: int) -> Tensor:
    """The entries of a weight whose output and input are kept; each group of a convolution has its own of both."""
    weight = layer.get_parameter("weight")
    both = outputs.view(groups, -1, 1) & inputs.view(groups, 1, -1)
    flat = (both.transpose(1, 2) if isinstance(layer, TRANSPOSED) else both).flatten(0, 1)
    return flat.view(*flat.shape, *[1] * (weight.dim() - 2)).expand_as(weight).clone()


def ends_of(layer: nn.Module) -> Ends:
    if isinstance(layer, nn.Linear):
        return Ends(layer.in_features, layer.out_features, 1)
    assert isinstance(layer, CONVOLUTIONS)
    return Ends(layer.in_channels, layer.out_channels, layer.groups)


def leading(size: int, count: int, like: Tensor) -> Tensor:
    return torch.arange(size, device=like.device) < count


def layers_of(module: nn.Module) -> dict[str, nn.Module]:
    """All layers with parameters, in order of registration; adapters as well, and layers that borrow parameters."""
    return {path: layer for path, layer in module.named_modules() if own_parameters(layer)}


def own_parameters(layer: nn.Module) -> dict[str, nn.Parameter]:
    return dict(layer.named_parameters(recurse=False))


def output_path(module: nn.Module) -> str:
    """The last layer with parameters outside of adapters; it must be one that has outputs of its own."""
    found = [(path, layer) for path, layer in named_layers(module).items() if own_parameters(layer)]
    if not found:
        raise InvalidModel(f"{type(module).__name__} has no parameters: there is nothing to slice.")
    path, layer = found[-1]
    if not isinstance(layer, PRODUCTS):
        raise InvalidModel(
            f"The last layer of {type(module).__name__}, '{path}', is a {type(layer).__name__}. It must be a Linear "
            "layer or a convolution, which keeps all its outputs, one for each class."
        )
    return path


def check_layers(module: nn.Module) -> None:
    unknown = {path: layer for path, layer in layers_of(module).items() if not can_be_cut(layer)}
    if unknown:
        told = [f"{', '.join(own_parameters(layer))} of {where(path, layer)}" for path, layer in unknown.items()]
        raise InvalidModel(
            f"{type(module).__name__} cannot be sliced to a smaller width because of {'; '.join(told)}. "
            "Layers that can be sliced: convolutions (also grouped or transposed), Linear, Embedding, and norms and "
            "PReLU over channels. Use those, or a method that needs no narrower networks."
        )


def can_be_cut(layer: nn.Module) -> bool:
    found = own_parameters(layer)
    if isinstance(layer, PER_CHANNEL):
        return all(value.dim() == 1 for value in found.values())
    return isinstance(layer, (*PRODUCTS, *EMBEDDINGS)) and found.keys() <= {"weight", "bias"}


def where(path: str, layer: nn.Module) -> str:
    return f"'{path}', a {type(layer).__name__}" if path else "the network itself"


def within(path: str, outer: str) -> bool:
    return outer in ("", path) or path.startswith(outer + ".")
