"""Training a narrower network: hidden layers scaled up to full width, and classes that a client has not left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from plures.core.errors import InvalidModel
from plures.core.networks import Network
from plures.core.problem import Outcome, Problem, descend
from plures.core.types import Batch, Params
from plures.core.visit import Trained, Upload, Visit
from plures.local.masks import cut, masked_delta

__all__ = ["Narrow", "NarrowDescent", "class_marks", "own_classes", "own_logits", "own_rows_delta"]

PREFIX = "classes."
TRIED = 0.5
"""The width at which networks are tried before round 1: what goes wrong there may go wrong at any other."""


@dataclass(frozen=True, kw_only=True)
class Narrow(Problem):
    """A phase whose view shows a narrower network, in HeteroFL's way of training one; penalties have no say."""

    scaled: frozenset[str] = frozenset()
    """Weights and biases of the layers whose outputs are divided by the client's width."""
    mask_logits: bool = False

    def loss(self, params: Params, batch: Batch) -> Tensor:
        seen = self.phase.view(params, batch.inputs)
        larger = {name: seen[name] / self.visit.capacity for name in self.scaled}
        output = self.binding.task.output(seen | larger, batch.inputs)
        if self.mask_logits:
            output = own_logits(output, self.visit.data.targets)
        return self.binding.task.loss_function(output, batch.targets)


@dataclass(frozen=True, kw_only=True)
class NarrowDescent:
    """Takes the steps of a narrower network; what there is to know of networks, the method brings along."""

    hidden: Callable[[nn.Module], frozenset[str]] | None
    """Weights and biases of the layers that are scaled; None: of no layer."""
    mask_logits: bool
    check_slices: Callable[[nn.Module, float, Tensor], None]

    def __call__(self, problem: Problem) -> Outcome:
        scaled = frozenset() if self.hidden is None else self.hidden(problem.binding.network.module)
        return descend(Narrow(**vars(problem), scaled=scaled, mask_logits=self.mask_logits))

    def check(self, problem: Problem) -> None:
        self.check_slices(problem.binding.network.module, TRIED, problem.visit.data.inputs[:8])


def own_classes(targets: Tensor, count: int) -> Tensor | None:
    """Which of so many classes are among the targets; None where there is no choice of classes, as in regression."""
    if targets.is_floating_point() or count < 2:
        return None
    numbers = targets.flatten().long()
    places = torch.where((numbers < 0) | (numbers >= count), count, numbers)  # losses pass by some targets
    found = torch.zeros(count + 1, dtype=torch.bool, device=targets.device)
    return found.index_fill(0, places, True)[:count]


def own_logits(output: Tensor, targets: Tensor) -> Tensor:
    """The output with zeros for classes that are not among the targets; classes are its second dimension."""
    own = own_classes(targets, output.shape[1]) if output.dim() > 1 else None
    return output if own is None else output.masked_fill(~own.view(-1, *[1] * (output.dim() - 2)), 0.0)


def class_marks(network: Network, names: Sequence[str]) -> Params:
    """Tells the upload which parameters have a row for each class."""
    taken = [name for name in network.parts if name.startswith(PREFIX)]
    if taken:
        raise InvalidModel(f"the model has '{taken[0]}', but '{PREFIX}' names marks of classes. Rename that module.")
    return {PREFIX + name: network.params[name].new_ones((), dtype=torch.bool) for name in names}


def own_rows_delta(visit: Visit, trained: Trained) -> Upload:
    """Received minus trained of the client's slice, without the rows of classes that the client has not."""
    values, held = masked_delta(visit, trained)
    assert held is not None
    own = {name: held[name] & own_rows(visit, name, value) for name, value in values.items()}
    return Upload({name: cut(value, own[name]) for name, value in values.items()}, own)


def own_rows(visit: Visit, name: str, value: Tensor) -> Tensor:
    """Ones where a parameter has the row of a class that the client has, or no such rows; to be broadcast."""
    own = own_classes(visit.data.targets, len(value)) if PREFIX + name in visit.state else None
    return value.new_ones((), dtype=torch.bool) if own is None else own.view(-1, *[1] * (value.dim() - 1))
