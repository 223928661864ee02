"""What a client's visit costs: operations of training, dense and as sparse as its model is, and memory at its peak."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass

import torch

from plures.core.client import Result
from plures.core.method import Method, Optimizer, Phase
from plures.core.program import Binding, Program
from plures.core.types import Params, is_constant, stays
from plures.core.visit import Visit
from plures.parts.profile import Profile, profile

BACKWARD = 3
"""A step costs a forward pass and, in the backward pass, twice as much again."""
PROFILES_KEPT = 1024
"""Architectures whose measurements are kept: a few numbers each."""


@dataclass(frozen=True, kw_only=True)
class VisitCost:
    """Of one client in one round."""

    flops: int
    """Of training, with what a sparse model leaves out; the search for masks included."""
    dense_flops: int
    """Of the same steps on the whole model, without a search."""
    search_flops: int
    """Of the search for masks alone."""
    peak_bytes: int
    """Most that the client holds at once: parameters, gradients, optimiser, activations."""
    density: float
    """Nonzero share of the parameters that the client's capacity is about; without one, of all."""

    def as_row(self) -> dict[str, float]:
        return asdict(self)


class CostMeter:
    """Counts visits of one run; each architecture is measured once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._profiles: dict[Hashable, Profile] = {}

    def profile(self, client: int) -> Profile:
        key = self.program.networks.key(client)
        if key not in self._profiles:
            if len(self._profiles) >= PROFILES_KEPT:
                self._profiles.clear()
            network = self.program.binding(client).network
            self._profiles[key] = profile(network.module, network.example)
        return self._profiles[key]

    def of_visit(self, visit: Visit, result: Result) -> VisitCost:
        """What a visit did cost."""
        return self.cost(visit, result, result.used)

    def cost(self, visit: Visit, result: Result, used: Mapping[str, int]) -> VisitCost:
        """Of a result's passes of the client's examples through a network with so many nonzero entries."""
        measured, binding = self.profile(visit.client), self.program.binding(visit.client)
        sizes = {name: value.numel() for name, value in binding.task.parameters.items()}
        forward = round(result.forward_passes * visit.facts.examples)
        work = BACKWARD * (round(result.passes * visit.facts.examples) - forward) + forward
        whole = BACKWARD * round(result.whole_passes * visit.facts.examples)
        search = BACKWARD * measured.flops() * sum(result.searched)
        return VisitCost(
            flops=measured.flops(used) * (work - whole) + measured.flops() * whole + search,
            dense_flops=measured.flops() * work,
            search_flops=search,
            peak_bytes=peak_bytes(self.program.method, binding, visit, result, used, measured),
            density=density(sizes, used, self.program.governed(visit.client)),
        )


def density(whole: Mapping[str, int], used: Mapping[str, int], names: Iterable[str]) -> float:
    """The share of some parameters that is not zero."""
    sizes = [(used.get(name, whole[name]), whole[name]) for name in names if name in whole]
    return sum(size for size, _ in sizes) / max(1, sum(size for _, size in sizes))


def largest_batch(phase: Phase, visit: Visit) -> int:
    indices = next(iter(phase.budget.batches(visit.facts.examples, torch.Generator())), torch.empty(0))
    return visit.facts.examples if indices is None else len(indices)


def peak_bytes(
    method: Method, binding: Binding, visit: Visit, result: Result, used: Mapping[str, int], measured: Profile
) -> int:
    """The most a client holds at once, values of masked-out coordinates not counted.

    Always: its parameters, and a bit for each entry of a mask. In a phase: what it received of those that move,
    gradients, the optimiser's state, and activations of a batch. In a search for masks: the received, and a dense
    gradient. On arrival: what it received and does not use. A visit that trains the whole model holds all of it.
    """
    values, held = binding.values, {} if result.whole_passes else used
    moving = {part for phase in method.local for part in phase.moves}
    received = bytes_of(values, [name for name in visit.received if binding.parts[name] in moving], held)
    kept = bytes_of(values, [*binding.picked(is_constant), *visit.received, *binding.picked(stays)], held)
    moments = [arriving_excess(binding, visit, held)]
    for phase in method.local:
        names = binding.names(*phase.moves, *([phase.observe] if phase.observe else []))
        gradients = bytes_of(values, names, held)
        optimizer = gradients * states_kept(phase.optimizer)
        moments.append(received + gradients + optimizer + measured.activation_bytes(largest_batch(phase, visit)))
    if result.searched:
        dense = bytes_of(values, binding.task.parameters, {})
        moments.append(received + dense + measured.activation_bytes(max(result.searched)))
    return kept + max(moments)


def bytes_of(values: Params, names: Iterable[str], used: Mapping[str, int]) -> int:
    """Bytes of some parameters, each as sparse as it is; a truth value is a bit."""
    sizes = [(used.get(name, values[name].numel()), values[name]) for name in names]
    return round(sum(count * (1 / 8 if value.dtype == torch.bool else value.element_size()) for count, value in sizes))


def arriving_excess(binding: Binding, visit: Visit, used: Mapping[str, int]) -> int:
    """Bytes of a download beyond what the client keeps of the shared part."""
    shared = list(visit.received)
    size = max((binding.values[name].element_size() for name in shared), default=4)
    return max(0, visit.down.num_values * size - bytes_of(binding.values, shared, used))


def states_kept(chosen: Optimizer | Mapping[str, Optimizer]) -> int:
    """Numbers that an optimiser keeps for each parameter: momentum is one, Adam has two."""
    rules = chosen.values() if isinstance(chosen, Mapping) else [chosen]
    probe = {"probe": torch.zeros(1)}
    return max((sum("probe" in group for group in rule.init(probe).values()) for rule in rules), default=0)
