"""What pFedGate is put together from: its split, its training, its upload, and what it records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import ClassVar, cast

import torch
from torch import nn

from plures.core.client import some_of
from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.method import Capacity, Optimizer
from plures.core.networks import Bare, Network, Wrap
from plures.core.problem import Outcome, Problem, descend
from plures.core.program import Binding
from plures.core.rates import check_count, check_positive, check_rate
from plures.core.types import KNOWN, SHARED, Params, Part
from plures.core.visit import Beginning, Trained, Upload, Visit
from plures.local.optimizers import Sgd
from plures.local.touched import TouchedOnly, touched
from plures.parts import BufferPolicy, all_shared, split
from plures.parts.blocks import CutRule, Cuts, gated_names
from plures.parts.gated import GatedNetwork, GatedOptions
from plures.parts.profile import profile

GATE: Part = "gate"
GATE_BUFFERS: Part = "gate.buffers"
NETWORK = "network."
BINS = 10


@dataclass(frozen=True, kw_only=True)
class GatedSplit:
    """The network inside is shared, its running statistics as `buffers` says; the gate is the client's."""

    buffers: BufferPolicy | None

    def resolve(self, model: nn.Module) -> dict[str, Part]:
        gated = as_gated(model)
        inner = split(all_shared(), buffers=self.buffers).resolve(gated.network)
        parts: dict[str, Part] = {NETWORK + name: part for name, part in inner.items()}
        parts |= {f"gate.{name}": GATE for name, _ in gated.gate.named_parameters()}
        parts |= {f"gate.{name}": GATE_BUFFERS for name, _ in gated.gate.named_buffers()}
        own = {"capacity": KNOWN, "mean_input": GATE_BUFFERS}
        return parts | {name: part for name, part in own.items() if name in dict(gated.named_buffers())}


def as_gated(module: nn.Module) -> GatedNetwork:
    return cast(GatedNetwork, module)


def spans_of(gated: GatedNetwork) -> dict[str, list[tuple[int, int]]]:
    """Of each gated parameter, where its pieces start and stop."""
    return {NETWORK + n: [(p.start, p.stop) for p in pieces] for n, pieces in gated.blocks.by_name.items()}


def check_gate_options(*, density: float, splits: int, least: float | None, cut: str | Cuts | CutRule) -> float:
    """The share that is always kept; by default that of one piece, or a tenth, or less where the capacity is less."""
    check_positive("density of pfedgate", density)
    for what, value in (("density", density), ("least", 1.0 if least is None else least)):
        if check_rate(f"{what} of pfedgate", value) > 1:
            raise InvalidConfig(f"{what} of pfedgate is a share, at most 1, not {value!r}.")
    check_count("splits of pfedgate", splits, least=2)
    if not isinstance(cut, str | Mapping) and not callable(cut):
        raise InvalidConfig(
            f"cut of pfedgate is {cut!r}: give a word, a dict or a function (docs/methods/pfedgate.md)."
        )
    return min(max(1 / splits, 0.1), density) if least is None else least


def wrap_in_gates(options: GatedOptions, block_cost: str) -> Wrap:
    """The network with a gate before it; each entry of a block costs one, or what it multiplies."""

    def wrap(bare: Bare) -> nn.Module:
        per_entry = flops_per_entry(bare) if block_cost == "flops" else None
        if block_cost == "bytes":
            per_entry = {name: float(value.element_size()) for name, value in bare.module.named_parameters()}
        return GatedNetwork(bare.module, bare.example(), options, per_entry)

    return wrap


def flops_per_entry(bare: Bare) -> dict[str, float]:
    """Operations of a forward pass that an entry of each parameter takes part in; of lone biases and scales, one."""
    found: dict[str, float] = {}
    for layer in profile(bare.module, bare.example()).layers:
        found[layer.weight] = found.get(layer.weight, 0.0) + 2.0 * layer.uses  # tied layers share a weight
        if layer.bias is not None:
            found[layer.bias] = found.get(layer.bias, 0.0) + float(layer.positions)
    unknown = [
        name for name in gated_names(bare.module) if name not in found and bare.module.get_parameter(name).dim() > 1
    ]
    if unknown:
        raise InvalidModel(
            f"Operations are counted of convolutions and linear layers, but '{unknown[0]}' is in none that was called. "
            'Use block_cost = "parameters".'
        )
    return {name: found.get(name, 1.0) for name, _ in bare.module.named_parameters()}


def capacity_rule(density: float, *, by_entries: bool) -> Capacity:
    """A client keeps at most its share of the gated entries in all; which ones, its gate decides.

    Where blocks cost operations, the share is of those, and the entries are not limited.
    """

    def sizes(network: Network, capacity: float) -> Mapping[str, int]:
        gated = as_gated(network.module)
        sack = gated.knapsack
        if capacity < 1 and float(sack.costs[sack.forced].sum()) > capacity * float(sack.costs.sum()) * (1 + 1e-9):
            share = float(sack.costs[sack.forced].sum() / sack.costs.sum())
            raise InvalidConfig(
                f"A capacity of {capacity:g} is less than the {share:.3g} that pfedgate always keeps, the first piece "
                f'of each parameter. Give least = {capacity:g} with cut = "first", or more splits; in cuts of your own '
                "a first piece of 0."
            )
        check_nothing_dies(gated, capacity)
        whole = {NETWORK + name: network.params[NETWORK + name].numel() for name in gated.blocks.by_name}
        if not by_entries:
            return whole
        ends = [math.floor(capacity * end * (1 + 1e-12)) for end in accumulate(whole.values(), initial=0)]
        return {name: stop - start for name, (start, stop) in zip(whole, pairwise(ends), strict=True)}

    return Capacity(unit="density", usual=density, sizes=sizes, limits_uploads=False)


def check_nothing_dies(gated: GatedNetwork, capacity: float) -> None:
    """Refuse a capacity under which some weight could never have a block: nothing would pass it, for ever."""
    rooms = gated.knapsack.rooms(capacity)
    weights = {name for name, value in gated.network.named_parameters() if value.dim() > 1}
    for name in [name for name in gated.blocks.by_name if name in weights]:
        pieces = gated.blocks.by_name[name]
        blocks = {piece.block for piece in pieces}
        cheapest = min(float(gated.knapsack.costs[block]) for block in blocks)
        if not blocks & gated.blocks.forced and cheapest > float(rooms[gated.blocks.groups[pieces[0].block]]):
            raise InvalidConfig(
                f"No block of '{name}' fits a capacity of {capacity:g}: nothing would ever pass it. Give more splits, "
                'cut = "first", or a larger capacity.'
            )


def with_capacity(beginning: Beginning) -> Params:
    state = beginning.state
    return state | {"capacity": torch.full_like(state["capacity"], beginning.capacity)}


@dataclass(frozen=True)
class GatedTraining:
    """Steps on network and gate at once; dropped blocks keep their values, whatever the optimiser remembers."""

    for_any_phase: ClassVar[bool] = True
    """It serves whatever phase moves the network or the gate."""

    def __call__(self, problem: Problem) -> Outcome:
        gated, params = as_gated(problem.binding.task.module), problem.params
        if "mean_input" in params:
            params = params | {"mean_input": problem.visit.data.inputs.mean(dim=0, keepdim=True)}
        phase, chosen = problem.phase, problem.phase.optimizer
        rules = dict(chosen) if isinstance(chosen, Mapping) else dict.fromkeys(phase.moves, chosen)
        if SHARED in rules and moves_untouched(rules[SHARED]):
            rules[SHARED] = TouchedOnly(rule=rules[SHARED], spans=spans_of(gated))
        return descend(Problem(**vars(problem) | {"phase": replace(phase, optimizer=rules), "params": params}))


gated_training = GatedTraining()


def moves_untouched(rule: Optimizer) -> bool:
    """Whether a gradient of zero may move something: plain SGD leaves it alone by itself."""
    return not isinstance(rule, Sgd) or rule.momentum > 0 or rule.weight_decay > 0


def touched_delta(visit: Visit, trained: Trained) -> Upload:
    """Received minus trained, of the blocks in which anything moved."""
    assert visit.network is not None
    moved = {name: visit.received[name] - value for name, value in trained.shared.items()}
    spans = {name: [(0, change.numel())] for name, change in moved.items()} | spans_of(as_gated(visit.network.module))
    return Upload(moved, {name: touched(change, spans[name]) for name, change in moved.items()})


def gate_histogram(binding: Binding, params: Params, visit: Visit) -> dict[str, list[float]]:
    """Shares of blocks by their mean weight, in ten bins from 0 to 1, and the share of blocks that are kept."""
    with torch.inference_mode():
        binding.task.train(False)
        told = binding.task.ask("gates", params, some_of(visit.data.inputs))
    weights = told["weights"].float().mean(dim=0)
    counts = torch.histc(weights.clamp(0, 1), bins=BINS, min=0.0, max=1.0)
    kept = told["kept"].float().mean()
    return {"gate_weights": (counts / counts.sum()).tolist(), "blocks_kept": [float(kept)]}
