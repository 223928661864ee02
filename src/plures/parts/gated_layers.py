"""Linear and convolution layers that apply the gates of their blocks themselves.

With a gate for each example, outputs are scaled instead of weights: a piece of a weight that follows rows scales rows
of the output. With gates for the whole batch and blocks of whole rows, dropped rows are skipped in both directions;
only a gate that learns from what it drops needs one product of theirs, in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from plures.core.errors import InvalidModel
from plures.parts.blocks import Blocks
from plures.parts.scaling import Piece

BY_LAYERS = (
    "Gates for each example, and blocks of rows, are applied to the outputs of linear layers and ungrouped "
    'convolutions, one example at each place of the first dimension. Use level = "batch" with cut = "first".'
)
GATEABLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Rest(NamedTuple):
    """What is left of rows that a cut goes through: which row, from which entry on, and of which block."""

    row: int
    start: int
    block: int


@dataclass(frozen=True, kw_only=True)
class LayerGates:
    """The blocks of one layer, row by row."""

    rows: Tensor
    """The block that each row of the weight begins in."""
    rest: tuple[Rest, ...]
    bias: Tensor | None
    """The block of each entry of the bias."""

    @cached_property
    def with_bias(self) -> bool:
        """Whether each entry of the bias is of the same block as its row."""
        return self.bias is not None and torch.equal(self.rows, self.bias)


class Gating:
    """The gates of the forward pass that is under way; what is set by the gated network, and read by its layers."""

    weights: Tensor | None = None
    """(examples, blocks), or (1, blocks) for the whole batch."""
    kept: Tensor | None = None
    """(blocks), where dropped blocks are to be skipped."""
    dropped_learn: bool = False
    """Whether the gates of skipped blocks are to have a gradient."""


def layer_gates(weight: Sequence[Piece], bias: Sequence[Piece] | None, shape: torch.Size) -> LayerGates:
    """Which block each row is of; a cut inside a row leaves a rest."""
    length = shape[1:].numel()
    rows, rest = [-1] * shape[0], []
    for _, start, stop, block in weight:
        for row in range(start // length, -(-stop // length)):
            if rows[row] < 0:
                rows[row] = block
            else:
                rest.append(Rest(row, start - row * length, block))
    entries = None if bias is None else [p.block for p in bias for _ in range(p.stop - p.start)]
    return LayerGates(
        rows=torch.tensor(rows), rest=tuple(rest), bias=None if entries is None else torch.tensor(entries)
    )


def equip(network: nn.Module, blocks: Blocks, gating: Gating) -> None:
    """Make every gated layer of a network apply its own gates, in place; its parameters keep their names."""
    names = {id(value): name for name, value in network.named_parameters()}  # of tied ones, the first
    left = set(blocks.by_name)
    for layer in network.modules():
        if not isinstance(layer, GATEABLE) or getattr(layer, "groups", 1) > 1:
            continue
        weight, bias = (names.get(id(value), "") for value in (layer.weight, layer.bias))
        if weight in blocks.by_name:
            gates = layer_gates(blocks.by_name[weight], blocks.by_name.get(bias), layer.weight.shape)
            layer.forward = GatedForward(layer, gates, gating)  # type: ignore[assignment]
            left -= {weight, bias}
    if left:
        raise InvalidModel(f"{sorted(left)} are not of linear layers or ungrouped convolutions. {BY_LAYERS}")


def check_equipped(network: nn.Module, plain: nn.Module, blocks: Blocks, gating: Gating, inputs: Tensor) -> None:
    """Refuse a network that uses weights in another way than by its layers, or mixes examples before them.

    Each example has random gates; `plain` is the network before it was equipped. All is in double precision.
    """
    gates = torch.rand(len(inputs), blocks.count, generator=torch.Generator().manual_seed(0)).to(inputs)
    params = dict(plain.named_parameters())
    try:
        shown = [{name: blocks.expand(name, row, params[name]) for name in blocks.by_name} for row in gates]
        wanted = torch.cat([functional_call(plain, shown[n], (inputs[n : n + 1],)) for n in range(len(inputs))])
    except (RuntimeError, ValueError, TypeError, LookupError):
        return  # the network does not take such inputs at all, as will be found
    gating.weights = gates
    try:
        found = network(inputs)
        right = torch.allclose(found, wanted)
    except RuntimeError:
        right = False
    finally:
        gating.weights = None
    if not right:
        raise InvalidModel(f"{type(plain).__name__} does more with its weights than to call its layers. {BY_LAYERS}")


class GatedForward:
    """The forward pass of one layer under its gates."""

    def __init__(self, layer: nn.Module, gates: LayerGates, gating: Gating) -> None:
        self.layer, self.gates, self.gating = layer, gates, gating

    def __call__(self, inputs: Tensor) -> Tensor:
        assert self.gating.weights is not None
        if self.gating.kept is not None and not self.gates.rest:
            return self._skipping(inputs, self.gating.weights[0], self.gating.kept)
        return self._scaling(inputs, self.gating.weights)

    def _scaling(self, inputs: Tensor, gates: Tensor) -> Tensor:
        """Rows of the output times their gates; what a cut leaves of a row is corrected for."""
        weight, bias = self.layer.weight, self.layer.bias
        assert isinstance(weight, Tensor)
        channel = -1 if isinstance(self.layer, nn.Linear) else 1
        output = self._product(inputs, weight, None)
        scale = gates[:, self.gates.rows]
        output = output * spread(scale, output, channel)
        if self.gates.rest:
            rows = torch.tensor([rest.row for rest in self.gates.rest], device=output.device)
            ends = torch.stack([after(weight[rest.row], rest.start) for rest in self.gates.rest])
            change = gates[:, [rest.block for rest in self.gates.rest]] - gates[:, self._before()]
            output = output.index_add(
                channel if channel > 0 else output.dim() - 1,
                rows,
                (part := self._product(inputs, ends, None)) * spread(change, part, channel),
            )
        if isinstance(bias, Tensor) and self.gates.bias is not None:
            output = output + spread(gates[:, self.gates.bias] * bias, output, channel)
        return output

    def _before(self) -> list[int]:
        """The block that each rest would have been counted to: that of the entries just before it."""
        blocks, last = [], dict(enumerate(self.gates.rows.tolist()))
        for rest in self.gates.rest:
            blocks.append(last[rest.row])
            last[rest.row] = rest.block
        return blocks

    def _skipping(self, inputs: Tensor, gates: Tensor, kept: Tensor) -> Tensor:
        """Only rows of kept blocks are computed; the others are zero."""
        weight, bias = self.layer.weight, self.layer.bias if self.gates.with_bias else None
        assert isinstance(weight, Tensor)
        blocks = self.gates.rows.to(gates.device)
        rows, dropped = (torch.nonzero(chosen).flatten() for chosen in (kept[blocks], ~kept[blocks]))
        none = len(rows) == 0
        if none:  # a convolution needs one row; this one is dropped, and times zero
            rows = torch.zeros_like(blocks[:1])
        scale = gates[blocks[rows]].detach() if none else gates[blocks[rows]]
        chosen = weight[rows] * scale.reshape(-1, *[1] * (weight.dim() - 1))
        part = self._product(inputs, chosen, bias[rows] * scale if isinstance(bias, Tensor) else None)
        if len(dropped) == 0:
            return self._with_own_bias(part, gates)
        channel = part.dim() - 1 if isinstance(self.layer, nn.Linear) else 1
        shape = list(part.shape)
        shape[channel] = len(weight)
        output = torch.zeros(shape, dtype=part.dtype, device=part.device).index_copy(channel, rows, part)
        output = self._with_own_bias(output, gates)
        if not self.gating.dropped_learn:
            return output
        biases = bias[dropped].detach() if isinstance(bias, Tensor) else None
        frozen = (inputs.detach(), weight[dropped].detach(), biases)
        learning: Tensor = DroppedGates.apply(output, gates[blocks[dropped]], *frozen, dropped, channel, self._product)  # type: ignore[no-untyped-call]
        return learning

    def _with_own_bias(self, output: Tensor, gates: Tensor) -> Tensor:
        """The output, and the bias where that is in blocks of its own."""
        bias, blocks = self.layer.bias, self.gates.bias
        if blocks is None or self.gates.with_bias or not isinstance(bias, Tensor):
            return output
        channel = -1 if isinstance(self.layer, nn.Linear) else 1
        return output + spread((gates[blocks.to(gates.device)] * bias)[None], output, channel)

    def _product(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if isinstance(self.layer, nn.Linear):
            return nn.functional.linear(inputs, weight, bias)
        result: Tensor = self.layer._conv_forward(inputs, weight, bias)  # type: ignore[operator]
        return result


class DroppedGates(torch.autograd.Function):
    """Leaves an output as it is; the gates of its dropped rows get the gradient that they would have if computed.

    Row r is gate_r * (weight_r inputs + bias_r), so that the gradient of its gate is the sum of the row's gradient
    times what stands in brackets: one product, where the dense pass takes three.
    """

    @staticmethod
    def forward(
        output: Tensor,
        gates: Tensor,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rows: Tensor,
        channel: int,
        product: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    ) -> Tensor:
        return output.view_as(output)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, _, layer_inputs, weight, bias, rows, ctx.channel, ctx.product = inputs
        ctx.save_for_backward(layer_inputs, weight, bias, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        inputs, weight, bias, rows = ctx.saved_tensors
        ungated = ctx.product(inputs, weight, bias)
        wanted = (grad.index_select(ctx.channel, rows) * ungated).movedim(ctx.channel, 0).flatten(1).sum(dim=1)
        return grad, wanted, None, None, None, None, None, None


def spread(scale: Tensor, output: Tensor, channel: int) -> Tensor:
    """(examples, rows) in the shape of an output, whose rows are its last dimension or its second."""
    middle = [1] * (output.dim() - 2)
    shape = [len(scale), *middle, scale.shape[1]] if channel < 0 else [len(scale), scale.shape[1], *middle]
    return scale.reshape(shape)


def after(row: Tensor, start: int) -> Tensor:
    """A row with zeros before an entry."""
    flat = row.reshape(-1)
    return torch.cat([torch.zeros_like(flat[:start]), flat[start:]]).reshape(row.shape)
