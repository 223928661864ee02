"""Channels of convolutions, and which entries of a network are of no use once one is silent: found by trying."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from plures.core.seeds import generator
from plures.core.types import Params

__all__ = ["PRODUCTS", "Channels", "find_channels"]

CONVOLUTIONS = (nn.modules.conv._ConvNd,)
TRANSPOSED = (nn.modules.conv._ConvTransposeNd,)
PRODUCTS = (*CONVOLUTIONS, nn.Linear)
NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm)
EXAMPLES = 8
"""Tried at once, so that no layer is silent by chance."""

Inputs = dict[str, list[Tensor]]
"""All that came to each convolution and linear layer, in the order of their first use."""


class Channels(NamedTuple):
    """What comes out of one convolution."""

    weight: str
    """Its filters: along the first dimension, one for each channel."""
    scale: str | None
    """Of the norm right after it, where there is one."""
    others: tuple[str, ...]
    """Its bias, and scale and shift of the norm: one entry for each channel."""
    takers: tuple[str, ...]
    """Weights that meet zeros where a channel is silent: along the second dimension, neighbours for each channel."""

    @property
    def own(self) -> tuple[str, ...]:
        return (self.weight, *self.others)

    def importance(self, params: Params) -> Tensor:
        """The size of the norm's scale, or of the filter: the sum of its entries' sizes."""
        return params[self.weight].abs().flatten(1).sum(1) if self.scale is None else params[self.scale].abs()

    def places(self, name: str, channel: int, params: Params) -> tuple[slice, ...]:
        """Where in a parameter the entries of a channel are."""
        if name in self.own:
            return (slice(channel, channel + 1),)
        each = params[name].shape[1] // params[self.weight].shape[0]
        return (slice(None), slice(channel * each, (channel + 1) * each))


_FOUND: WeakKeyDictionary[nn.Module, list[Channels]] = WeakKeyDictionary()
"""Networks are tried once: what is found does not depend on values."""


def find_channels(module: nn.Module, inputs: Tensor) -> list[Channels]:
    """Of every convolution that other layers follow, in the order of their use.

    Left out are those with groups, transposed ones, and those that no convolution or linear layer follows, for their
    channels are outputs of the network. Takers are layers to which nothing comes while the convolution gives zeros. A
    layer to which something comes all the same, over a shortcut for example or out of a sigmoid, is none.
    """
    if module not in _FOUND:
        trial = Trial(module, inputs[:EXAMPLES])
        _FOUND[module] = [found for path in trial.usual if (found := trial.channels(path)) is not None]
    return _FOUND[module]


class Trial:
    """A copy of a network in which channels can be silenced."""

    def __init__(self, module: nn.Module, inputs: Tensor) -> None:
        self.network, self.inputs = copy.deepcopy(module).eval(), inputs
        if inputs.is_floating_point():  # numbers that are nobody's, and none of them 0
            self.inputs = torch.randn(EXAMPLES, *inputs.shape[1:], generator=generator(0, "trial")).to(inputs)
        self.layers = dict(self.network.named_modules())
        self.norms = self.norms_after()
        self.usual = self.run()

    def channels(self, path: str) -> Channels | None:
        """Those of a convolution with all that belongs to them; None if it has none to be pruned."""
        layer, norm = self.layers[path], self.norms.get(path)
        if not isinstance(layer, CONVOLUTIONS) or not is_plain(layer):
            return None
        count = layer.out_channels
        silent, half = self.run(path, count), self.run(path, count // 2)
        if all(torch.equal(*pair) for at in self.usual for pair in zip(self.usual[at], silent[at], strict=True)):
            return None
        own = [name for at in (path, norm) if at is not None for name in self.names(at)]
        return Channels(
            weight=f"{path}.weight",
            scale=None if norm is None else f"{norm}.weight",
            others=tuple(name for name in own if name != f"{path}.weight"),
            takers=tuple(f"{at}.weight" for at in self.usual if self.depends(at, silent, half, count)),
        )

    def names(self, path: str) -> list[str]:
        return [f"{path}.{name}" for name, _ in self.layers[path].named_parameters(recurse=False)]

    def depends(self, path: str, silent: Inputs, half: Inputs, count: int) -> bool:
        """Whether nothing comes to a layer without these channels, and without the first half, nothing of theirs."""
        layer = self.layers[path]
        usual, without, rest = (coming(layer, inputs[path]) for inputs in (self.usual, silent, half))
        each, left_over = divmod(len(usual), count)
        if not is_plain(layer) or left_over or (each > 1 and isinstance(layer, CONVOLUTIONS)):
            return False
        first = slice(count // 2 * each)
        return bool(usual[first].any()) and not bool(without.any()) and not bool(rest[first].any())

    def run(self, silenced: str | None = None, count: int = 0) -> Inputs:
        """What comes to each layer while the first channels of a convolution are silent, after its norm."""
        seen: Inputs = {}
        hooks = [
            layer.register_forward_pre_hook(partial(note, seen, path), with_kwargs=True)
            for path, layer in self.layers.items()
            if isinstance(layer, PRODUCTS)
        ]
        if silenced is not None:
            dim = channel_dim(self.layers[silenced])
            last = self.layers[self.norms.get(silenced, silenced)]
            hooks.append(last.register_forward_hook(partial(silence, dim, count)))
        self.forward(hooks)
        return seen

    def norms_after(self) -> dict[str, str]:
        """Convolutions whose very output a norm with scales takes, each with that norm."""
        outputs: dict[str, Tensor] = {}
        found: dict[str, str] = {}
        hooks = []

        def keep(path: str, layer: nn.Module, given: tuple[Any, ...], output: Tensor) -> None:
            outputs[path] = output

        def look(path: str, layer: nn.Module, given: tuple[Any, ...]) -> None:
            found.update({before: path for before, output in outputs.items() if given and given[0] is output})

        for path, layer in self.layers.items():
            if isinstance(layer, CONVOLUTIONS):
                hooks.append(layer.register_forward_hook(partial(keep, path)))
            elif isinstance(layer, NORMS) and layer.weight is not None:
                hooks.append(layer.register_forward_pre_hook(partial(look, path)))
        self.forward(hooks)
        return found

    def forward(self, hooks: list[Any]) -> None:
        with torch.no_grad():
            self.network(self.inputs)
        for hook in hooks:
            hook.remove()


def note(seen: Inputs, path: str, layer: nn.Module, given: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    seen.setdefault(path, []).append((given[0] if given else keywords["input"]).clone())


def silence(dim: int, count: int, layer: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor:
    return torch.cat(
        [torch.zeros_like(output.narrow(dim, 0, count)), output.narrow(dim, count, output.shape[dim] - count)], dim
    )


def coming(layer: nn.Module, inputs: list[Tensor]) -> Tensor:
    """For each channel that a layer takes, whether anything but zeros comes."""
    return torch.stack([(value != 0).movedim(channel_dim(layer), 0).flatten(1).any(1) for value in inputs]).any(0)


def channel_dim(layer: nn.Module) -> int:
    return -1 - len(layer.kernel_size) if isinstance(layer, CONVOLUTIONS) else -1


def is_plain(layer: nn.Module) -> bool:
    """Whether a weight's first dimension is what the layer gives, and the second all that it takes."""
    return not isinstance(layer, CONVOLUTIONS) or (layer.groups == 1 and not isinstance(layer, TRANSPOSED))
