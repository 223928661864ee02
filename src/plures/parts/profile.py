"""What one example costs in a network: operations of a forward pass, and memory that training keeps for a backward."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from plures.core.errors import InvalidData
from plures.parts.layers import CONVOLUTIONS

COUNTED = (*CONVOLUTIONS, nn.Linear)
TRANSPOSED = (nn.modules.conv._ConvTransposeNd,)
ATEN = torch.ops.aten
PRODUCTS = {ATEN.mm, ATEN.addmm, ATEN.bmm, ATEN.baddbmm, ATEN.convolution, ATEN._convolution}


class LayerCost(NamedTuple):
    """A convolution or linear layer, as often as one example uses it."""

    weight: str
    bias: str | None
    weight_size: int
    bias_size: int
    uses: int
    """Multiplications per entry of the weight: output positions; input positions of a transposed convolution."""
    positions: int
    """Output positions, each of which adds the bias."""

    def flops(self, nonzero: Mapping[str, int]) -> int:
        biases = 0 if self.bias is None else nonzero.get(self.bias, self.bias_size)
        return 2 * nonzero.get(self.weight, self.weight_size) * self.uses + biases * self.positions


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The cost of one example. Norms, activation functions and pooling count as free."""

    layers: tuple[LayerCost, ...]
    other_flops: int
    """Products outside of these layers, such as in attention and recurrent layers; always those of dense weights."""
    fixed_bytes: int
    """Kept for the backward pass whatever the size of the batch."""
    example_bytes: int
    """Kept for the backward pass with every example of a batch."""

    def flops(self, nonzero: Mapping[str, int] | None = None) -> int:
        """Operations of a forward pass of one example: two per nonzero weight and one per bias and position.

        `nonzero` has the nonzero entries of some parameters; the others are dense.
        """
        return sum(layer.flops(nonzero or {}) for layer in self.layers) + self.other_flops

    def activation_bytes(self, batch: int) -> int:
        """What autograd keeps for the backward pass of a batch of so many examples."""
        return self.fixed_bytes + batch * self.example_bytes


def profile(module: nn.Module, example: Tensor) -> Profile:
    """Measures a copy of the network with the first example of a batch; the network itself stays as it is."""
    layers, other = forward_costs(module, first_example(module, example))
    fixed, each = memory(module, example)
    return Profile(layers=layers, other_flops=other, fixed_bytes=fixed, example_bytes=each)


def activation_bytes(module: nn.Module, example: Tensor, batch: int) -> int:
    """What autograd keeps for the backward pass of a batch of so many such examples, without the parameters."""
    fixed, each = memory(module, example)
    return fixed + batch * each


def memory(module: nn.Module, example: Tensor) -> tuple[int, int]:
    """Bytes that are kept for any batch, and those per example; from two small batches, for growth is linear.

    Batches of 2 and 3, since batch normalisation refuses a batch of 1.
    """
    one = first_example(module, example)
    two, three = (kept_bytes(module, torch.cat([one] * batch)) for batch in (2, 3))
    return two - 2 * (three - two), three - two


def kept_bytes(module: nn.Module, inputs: Tensor) -> int:
    """Bytes that autograd keeps after a forward pass in training mode, each storage counted once.

    Parameters and buffers are there anyway. Dropout draws as it likes: torch's generators are put back afterwards.
    """
    network = copy.deepcopy(module)
    if not network.training:  # else a layer that its owner holds in evaluation mode stays there
        network.train()
    own = {value.untyped_storage().data_ptr() for value in (*network.parameters(), *network.buffers())}
    kept: list[Tensor] = []  # tensors and not addresses: freed memory would be used again, and counted once

    def pack(value: Tensor) -> Tensor:
        kept.append(value)
        return value

    with drawing_aside(network), torch.enable_grad(), saved_tensors_hooks(pack, lambda value: value):
        output = network(inputs)
    storages = {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes() for value in kept}
    del output
    return sum(size for address, size in storages.items() if address not in own)


def forward_costs(module: nn.Module, one: Tensor) -> tuple[tuple[LayerCost, ...], int]:
    """The convolutions and linear layers that an example passes, and the operations that are in none of them."""
    network = copy.deepcopy(module).eval()
    used: dict[nn.Module, tuple[int, int]] = {}
    calls = 0

    def count(layer: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Tensor) -> None:
        uses, positions = uses_of(layer, inputs[0] if inputs else keywords["input"], output)
        nonlocal calls
        calls += 1
        before = used.get(layer, (0, 0))
        used[layer] = before[0] + uses, before[1] + positions

    layers = {path: layer for path, layer in network.named_modules() if isinstance(layer, COUNTED)}
    hooks = [layer.register_forward_hook(count, with_kwargs=True) for layer in layers.values()]
    with drawing_aside(network), torch.no_grad(), plain_operations(), Products() as products:  # type: ignore[no-untyped-call]
        network(one)
    for hook in hooks:
        hook.remove()
    names = {id(value): name for name, value in network.named_parameters()}
    costs = tuple(cost_of(path, layer, names, *used[layer]) for path, layer in layers.items() if layer in used)
    if products.calls == calls:  # all products are in these layers; torch's own counter takes seconds to import
        return costs, 0
    with drawing_aside(network), torch.no_grad(), plain_operations(), FlopCounterMode(display=False) as counter:
        network(one)
    accounted = sum(2 * cost.weight_size * cost.uses for cost in costs)
    return costs, max(0, counter.get_total_flops() - accounted)


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the calls of all operations that multiply matrices."""

    calls = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled; torch need not import its compiler to be told so."""
        return False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.calls += function.overloadpacket in PRODUCTS
        return function(*args, **(kwargs or {}))


def uses_of(layer: nn.Module, source: Tensor, output: Tensor) -> tuple[int, int]:
    """How often one call uses each entry of the weight, and each of the bias."""
    assert isinstance(layer, COUNTED)
    positions = output.numel() // (layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels)
    return source.numel() // layer.in_channels if isinstance(layer, TRANSPOSED) else positions, positions


def cost_of(path: str, layer: nn.Module, names: Mapping[int, str], uses: int, positions: int) -> LayerCost:
    assert isinstance(layer.weight, Tensor)
    weight, bias = layer.weight, layer.bias
    prefix = path + "." if path else ""
    return LayerCost(
        weight=names.get(id(weight), prefix + "weight"),
        bias=names.get(id(bias), prefix + "bias") if isinstance(bias, Tensor) else None,
        weight_size=weight.numel(),
        bias_size=bias.numel() if isinstance(bias, Tensor) else 0,
        uses=uses,
        positions=positions,
    )


def first_example(module: nn.Module, example: Tensor) -> Tensor:
    """One example as a batch, on the network's device and, if it is of real numbers, in its precision."""
    if example.dim() == 0 or len(example) == 0:
        raise InvalidData(
            f"A network is measured with one example, but the batch given has shape {tuple(example.shape)}. "
            "Give a batch of one example at least; its first dimension counts examples."
        )
    like = next(module.parameters(), example)
    return example[:1].detach().to(like.device, like.dtype if example.is_floating_point() else example.dtype)


@contextmanager
def plain_operations() -> Iterator[None]:
    """Attention and recurrent layers as the products they are made of: fused ones are not counted."""
    fused = (torch.backends.mkldnn, torch.backends.cudnn)
    before = [library.enabled for library in fused]
    fast = torch.backends.mha.get_fastpath_enabled()
    try:
        set_enabled(fused, [False] * len(fused))
        torch.backends.mha.set_fastpath_enabled(False)
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        set_enabled(fused, before)
        torch.backends.mha.set_fastpath_enabled(fast)


def set_enabled(libraries: Sequence[Any], enabled: Sequence[bool]) -> None:
    for library, value in zip(libraries, enabled, strict=True):
        library.enabled = value


def drawing_aside(module: nn.Module) -> Any:
    """A context after which torch's generators are as they were before."""
    devices = {value.device for value in module.parameters() if value.device.type == "cuda"}
    return torch.random.fork_rng(devices=list(devices))
