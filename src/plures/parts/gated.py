"""A network whose blocks of parameters are weighed, kept or dropped by a gate that looks at the inputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from plures.core.errors import InvalidModel
from plures.core.types import Params
from plures.parts.blocks import Blocks, CutRule, Cuts, cut
from plures.parts.gate import Gate, GateOptions
from plures.parts.gated_layers import Gating, check_equipped, equip
from plures.parts.selection import Knapsack, SelectionName, worth

Level = Literal["batch", "sample", "client"]
ROWS = "rows"


@dataclass(frozen=True, kw_only=True)
class GatedOptions:
    """How a network is cut and gated."""

    cut: str | Cuts | CutRule = "first"
    splits: int = 5
    least: float = 0.2
    """The share of each parameter that is always kept, at most: s_min."""
    level: Level = "batch"
    """One set of gates for a batch, one for each example, or one for all that a client has."""
    select: SelectionName = "greedy"
    dropped_learn: bool = True
    """Whether importances of dropped blocks get a gradient, as in the paper; in the authors' code none has one that is
    dropped or below `least`."""
    gate: GateOptions = field(default_factory=GateOptions)
    examples_at_once: int = 128
    """Of which gates are means in evaluation, where `level` is "batch"."""


class Gates(NamedTuple):
    """Gates of a forward pass, each (examples or 1, blocks)."""

    effective: Tensor
    """What blocks are multiplied by: weight, where the block is kept, else 0."""
    weights: Tensor
    kept: Tensor


class GatedNetwork(nn.Module):
    """The given network as `network`, its gate as `gate`, and the capacity as a buffer that each client sets."""

    def __init__(
        self,
        network: nn.Module,
        example: Tensor,
        options: GatedOptions,
        per_entry: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        if not example.is_floating_point():
            raise InvalidModel("A gate looks at real numbers, but the inputs are whole ones (tokens).")
        self.options = options
        self.network = copy.deepcopy(network)
        self.blocks = cut(self.network, options.cut, options.splits, options.least)
        gate_options = options.gate
        if options.level == "client":  # of one vector there are no batch statistics
            gate_options = replace(gate_options, post_norm=False)
        self.gate = Gate(tuple(example.shape[1:]), self.blocks.count, gate_options)
        dtype = next(self.network.parameters()).dtype
        self.gate.to(dtype)
        self.capacity: Tensor
        self.mean_input: Tensor
        self.register_buffer("capacity", torch.ones((), dtype=torch.float64))  # 0.3 is to be 0.3, not a little more
        if options.level == "client":
            self.register_buffer("mean_input", torch.zeros(1, *example.shape[1:], dtype=dtype))
        self.knapsack = knapsack(self.blocks, options.least, per_entry)
        self.gating = Gating()
        self.equipped = options.level == "sample" or options.cut == ROWS or follows_rows(self.network, self.blocks)
        if self.equipped:
            plain = copy.deepcopy(self.network)
            try:
                equip(self.network, self.blocks, self.gating)
                self._check(copy.deepcopy(plain).double().eval(), example[:1].double())
            except InvalidModel:
                if options.level == "sample" or options.cut == ROWS:
                    raise
                self.network, self.equipped = plain, False  # nothing is skipped, but all is right

    def _check(self, plain: nn.Module, example: Tensor) -> None:
        """Try whether layers that apply their own gates do what gated weights do."""
        probe = copy.deepcopy(self).double().eval()
        shape = (3 if self.options.level == "sample" else 1, *example.shape[1:])  # any numbers do, but no blank ones
        inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(example)
        with torch.no_grad():
            check_equipped(probe.network, plain, self.blocks, probe.gating, inputs)

    def forward(self, inputs: Tensor, ask: str = "") -> Tensor | Params:
        """The network's output; "parameters" asks for its parameters as these inputs meet them, "gates" for gates."""
        if ask == "parameters":
            return self._shown(self.gates(inputs))
        if ask == "gates":
            return self.gates(inputs)._asdict()
        if self.options.level != "batch" or self.training:
            return self._output(inputs)
        return torch.cat([self._output(some) for some in torch.split(inputs, self.options.examples_at_once)])

    def _output(self, inputs: Tensor) -> Tensor:
        gates = self.gates(inputs)
        if self.equipped:
            return self._by_layers(inputs, gates)
        result: Tensor = functional_call(self.network, self._scaled(gates.effective[0]), (inputs,))
        return result

    def gates(self, inputs: Tensor) -> Gates:
        """Weights and choices for these inputs."""
        seen = self.mean_input if self.options.level == "client" else inputs
        weights, importance = self.gate(seen)
        if self.options.level == "batch":
            weights, importance = weights.mean(dim=0, keepdim=True), importance.mean(dim=0, keepdim=True)
        kept = self.selected(importance)
        chosen = kept.to(weights.dtype)
        if self.options.dropped_learn:
            through = chosen + (importance - importance.detach())
        else:  # the authors clip importances from below, which ends the gradient there too
            clipped = importance.clamp(min=self.options.least)
            through = chosen * (1 + (clipped - clipped.detach()))
        # With the whole capacity nothing is selected, and importances have no say.
        through = torch.where(self.capacity >= 1, torch.ones_like(through), through)
        return Gates(weights * through, weights, kept)

    def selected(self, importance: Tensor) -> Tensor:
        values = worth(importance.detach(), self.options.least)
        return self.knapsack.select(values, self.capacity, self.options.select)

    def _shown(self, gates: Gates) -> Params:
        """The network's parameters as the gates leave them; with a gate for each example, of whom they leave most."""
        largest = (gates.kept * self.knapsack.costs.to(gates.kept.device)).sum(dim=1).argmax()
        weights = torch.where(gates.kept, gates.weights, torch.zeros_like(gates.weights))[largest]
        return {f"network.{name}": value for name, value in self._scaled(weights).items()}

    def _scaled(self, gates: Tensor) -> Params:
        params = dict(self.network.named_parameters())
        return {name: self.blocks.expand(name, gates, params[name]) for name in self.blocks.by_name}

    def _by_layers(self, inputs: Tensor, gates: Gates) -> Tensor:
        self.gating.weights, self.gating.kept = gates.effective, gates.kept[0] if len(gates.kept) == 1 else None
        self.gating.dropped_learn = self.options.dropped_learn and torch.is_grad_enabled()
        try:
            result: Tensor = self.network(inputs)
        finally:
            self.gating.weights = self.gating.kept = None
        return result


def follows_rows(network: nn.Module, blocks: Blocks) -> bool:
    """Whether every weight is cut between its rows, so that dropped ones can be skipped."""
    params = dict(network.named_parameters())
    weights = [(name, params[name]) for name in blocks.by_name if params[name].dim() > 1]
    return all(
        piece.start % weight[0].numel() == 0 for name, weight in weights for piece in blocks.by_name[name]
    ) and any(len(blocks.by_name[name]) > 1 for name, _ in weights)


def knapsack(blocks: Blocks, least: float, per_entry: Mapping[str, float] | None) -> Knapsack:
    return Knapsack(
        costs=blocks.costs(per_entry),
        forced=torch.tensor([block in blocks.forced for block in range(blocks.count)]),
        groups=torch.tensor(blocks.groups),
        least=least,
    )
