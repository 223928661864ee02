"""Adapters: small networks inserted into a copy of any network, to be personal, shared, or both.

A layer `conv1` gets a child, `conv1.adapter`, and all else keeps its name, so weights of the plain network still load.
`adapters()` selects their parameters, `adapters_and_norms()` the norms as well. Initial values are drawn from torch's
global generator, once for all clients: give `plures.run` a function that makes the network, and they follow the seed.
Further adapters go in under another name: `conv_adapters(network, name="shared_adapter")`.
"""

from __future__ import annotations

from functools import partial
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.parts.insertion import Globs, Layers, add_from_input, add_to_output, check_dropout, insert, matching
from plures.parts.layers import CONVOLUTIONS, Adapter, in_shortcut, named_layers

CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
SUBLAYERS = ("attention", "attn", "self_attn", "feed_forward", "ffn", "mlp")
"""What the two halves of a transformer's block are called."""


class ConvAdapter(Adapter):
    """conv1x1(dropout(norm(h))), to be added to h: the residual adapter of Rebuffi et al. (2017)."""

    def __init__(self, width: int, dimensions: int, *, dropout: float, std: float, like: Tensor) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(num_groups(width), width)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.conv = CONVS[dimensions](width, width, 1, bias=False)
        self.to(like)
        nn.init.normal_(self.conv.weight, std=std)

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.conv(self.dropout(self.norm(hidden)))
        return result


class BottleneckAdapter(Adapter):
    """up(relu(down(dropout(x)))), to be added to x: the adapter of Houlsby et al. (2019)."""

    def __init__(self, width: int, hidden: int, *, dropout: float, std: float, like: Tensor) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.down = nn.Linear(width, hidden)
        self.up = nn.Linear(hidden, width)
        self.to(like)
        for layer in (self.down, self.up):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.up(F.relu(self.down(self.dropout(hidden))))
        return result


class LowRankAdapter(Adapter):
    """scale * x A^T B^T, to be added to W x: LoRA of Hu et al. (2022). A is N(0, 1/inputs), B is zero at the start."""

    def __init__(self, inputs: int, outputs: int, rank: int, *, scale: float, like: Tensor) -> None:
        super().__init__()
        self.scale = scale
        self.a = nn.Parameter(torch.randn(rank, inputs, dtype=like.dtype, device=like.device) / inputs**0.5)
        self.b = nn.Parameter(torch.zeros(outputs, rank, dtype=like.dtype, device=like.device))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scale * F.linear(F.linear(inputs, self.a), self.b)


def conv_adapters(
    module: nn.Module,
    *,
    after: Globs | None = None,
    dropout: float = 0.0,
    std: float = 1e-4,
    zero: bool = False,
    name: str = "adapter",
) -> nn.Module:
    """A copy with h + conv1x1(dropout(norm(h))) for the output h of the chosen convolutions.

    Without `after`, all but the first convolution and those in shortcuts. Weights are N(0, std^2), or exactly 0 with
    `zero`: then the network computes what it did before, to the last bit. FedAlt's authors add h twice, which the
    norm that follows takes back; here it is added once.
    """
    check_dropout(dropout)

    def make(layer: nn.Module) -> Adapter:
        assert isinstance(layer, CONVOLUTIONS)
        dimensions, scale = len(layer.kernel_size), 0.0 if zero else std
        return ConvAdapter(layer.out_channels, dimensions, dropout=dropout, std=scale, like=layer.weight)

    return insert(module, partial(choose_convolutions, after=after), make, add_to_output, name=name)


def bottleneck_adapters(
    module: nn.Module,
    *,
    after: Globs | None = None,
    hidden: int = 16,
    width: int | None = None,
    dropout: float = 0.0,
    std: float = 0.01,
    zero: bool = False,
    name: str = "adapter",
) -> nn.Module:
    """A copy with x + W2 relu(W1 dropout(x)) for the output x of the chosen modules.

    Without `after`, the attention and the feed-forward network of each block, by their usual names. Weights are
    N(0, std^2) and biases 0; with `zero` W2 is 0, and the network computes what it did before, to the last bit.
    `width` is the size of x; it is needed where the module does not tell it. Both adapters of a block come before its
    residual sums, as in Figure 2a of FedAlt's paper; its code has the second on what enters the feed-forward network.
    """
    check_dropout(dropout)
    check_size("hidden", hidden)

    def make(layer: nn.Module) -> Adapter:
        like = next(chain(layer.parameters(), module.parameters()), torch.empty(0))
        size = output_size(layer) if width is None else width
        adapter = BottleneckAdapter(size, hidden, dropout=dropout, std=std, like=like)
        if zero:
            nn.init.zeros_(adapter.up.weight)
        return adapter

    return insert(module, partial(choose_sublayers, after=after), make, add_to_output, name=name)


def lora(module: nn.Module, *, on: Globs, rank: int = 4, alpha: float = 8.0, name: str = "adapter") -> nn.Module:
    """A copy with W x + (alpha / rank) B A x in the chosen linear layers; it computes what the network did before."""
    check_size("rank", rank)

    def make(layer: nn.Module) -> Adapter:
        assert isinstance(layer, nn.Linear)
        return LowRankAdapter(layer.in_features, layer.out_features, rank, scale=alpha / rank, like=layer.weight)

    return insert(module, partial(choose_linear_layers, on=on), make, add_from_input, name=name)


def num_groups(width: int) -> int:
    """Groups of 8 channels up to width 64 and of 16 above, or else the most groups below that which divide the width.

    As in the ResNets of FedAlt's paper: 16:2, 32:4, 64:8, 128:8, 256:16, 512:32.
    """
    most = max(1, width // 8 if width <= 64 else width // 16)
    return next(groups for groups in range(most, 0, -1) if width % groups == 0)


def choose_convolutions(model: nn.Module, after: Globs | None) -> Layers:
    found = {path: layer for path, layer in named_layers(model).items() if isinstance(layer, CONVOLUTIONS)}
    if after is not None:
        return matching(model, found, after, "convolution")
    later = {path: found[path] for path in list(found)[1:] if not in_shortcut(path)}
    if not later:
        raise InvalidModel(
            f"{type(model).__name__} has no convolution but the first and those in shortcuts, which have no adapters "
            "unless you name them: after='*'."
        )
    return later


def choose_sublayers(model: nn.Module, after: Globs | None) -> Layers:
    layers = {path: layer for path, layer in named_layers(model).items() if path}
    if after is not None:
        return matching(model, layers, after, "module")
    found = {path: layer for path, layer in layers.items() if path.rpartition(".")[2] in SUBLAYERS}
    if not found:
        raise InvalidModel(
            f"{type(model).__name__} has no modules with the usual names of a transformer's sub-layers "
            f"({', '.join(SUBLAYERS)}). Name yours, as after=['*.attention', '*.dense2']."
        )
    return found


def choose_linear_layers(model: nn.Module, on: Globs) -> Layers:
    found = {path: layer for path, layer in named_layers(model).items() if isinstance(layer, nn.Linear)}
    return matching(model, found, on, "linear layer")


def output_size(layer: nn.Module) -> int:
    """The size of a module's output: attention's own, or that of its last linear layer."""
    if isinstance(layer, nn.MultiheadAttention):
        return int(layer.embed_dim)
    sizes = [inner.out_features for inner in named_layers(layer).values() if isinstance(inner, nn.Linear)]
    if not sizes:
        raise InvalidModel(f"{type(layer).__name__} does not tell the size of its output. Give width=...")
    return sizes[-1]


def check_size(what: str, size: int) -> None:
    if size < 1:
        raise InvalidModel(f"{what} is at least 1, not {size}.")
