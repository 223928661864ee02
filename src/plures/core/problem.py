"""One phase on one client: what a solver may ask, and the solver of nearly every phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from plures.core.clipping import clip_by_norm
from plures.core.method import Optimizer, Phase
from plures.core.program import Binding
from plures.core.seeds import generator
from plures.core.types import Batch, Params
from plures.core.visit import Visit

Gradient = Callable[[Callable[[Params], Tensor], Params], tuple[Params, Tensor]]
"""(loss, point) -> (gradients, loss at that point)."""

Watch = Callable[[int, Params], None]
"""Sees how many updates were made, and the parameters right after the last of them."""


Stepping = Callable[["Problem", Watch | None], "Outcome"]
"""Takes the steps of a phase; what it cannot take any faster it leaves to `plain_steps`."""


def eager_gradient(loss: Callable[[Params], Tensor], point: Params) -> tuple[Params, Tensor]:
    """Gradients by autograd; a parameter the loss does not depend on has gradient zero."""
    leaves = {name: value.detach().requires_grad_() for name, value in point.items()}
    value = loss(leaves)
    grads = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, grads, strict=True)), value.detach()


class Outcome(NamedTuple):
    """What a phase leaves behind."""

    params: Params
    observed: Params
    loss: Tensor
    """Mean over the updates; zero where there was none."""
    passes: float
    """Passes of the client's examples through the network."""
    forward_passes: float = 0.0
    """Of these, passes that go no way back."""
    whole_passes: float = 0.0
    """Of these, passes through the whole network, before a sparse model is cut from it."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One phase on one client: all a solver may ask."""

    phase: Phase
    visit: Visit
    binding: Binding
    params: Params
    gradient: Gradient = eager_gradient
    stepping: Stepping | None = None
    """How an engine takes the steps of a phase; None: plainly, by `plain_steps`."""
    taken: list[int] = field(default_factory=list)
    """Of each gradient that was taken, how many examples it was of."""

    def batches(self) -> Iterator[Batch]:
        """The batches of the phase's budget; the same stream gives the same batches in every phase."""
        data, budget = self.visit.data, self.phase.budget
        keys = (self.visit.round, self.visit.client, budget.stream)
        draws, changes = generator(self.visit.seed, "batches", *keys), generator(self.visit.seed, "augment", *keys)
        augment = self.binding.task.augment
        for indices in budget.batches(data.num_examples, draws):
            batch = data if indices is None else Batch(data.inputs[indices], data.targets[indices])
            # Statistics of a batch need two examples at least; a single one left over is passed by.
            if batch.num_examples > 1 or not self.binding.task.needs_pairs:
                yield batch if augment is None else Batch(augment(batch.inputs, changes), batch.targets)

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """The loss of the phase: what the view shows to the network, and the penalty."""
        value = self.binding.task.loss(self.phase.view(params, batch.inputs), batch)
        return value if self.phase.penalty is None else value + self.phase.penalty(params, self.visit)

    def gradients(self, params: Params, batch: Batch, names: list[str]) -> tuple[Params, Tensor]:
        """Gradients of the phase's loss for some names, the others held still."""
        point = {name: params[name] for name in names}
        self.taken.append(batch.num_examples)
        return self.gradient(lambda watched: self.loss(params | watched, batch), point)

    def moving_names(self) -> list[str]:
        return self.binding.names(*self.phase.moves)

    def observed_names(self) -> list[str]:
        return [] if self.phase.observe is None else self.binding.names(self.phase.observe)

    def optimizers(self) -> list[tuple[Optimizer, list[str]]]:
        """Each optimiser of the phase with the names it moves."""
        chosen = self.phase.optimizer
        if not isinstance(chosen, Mapping):
            return [(chosen, self.moving_names())]
        return [(chosen[part], self.binding.names(part)) for part in self.phase.moves]

    def clipped(self, grads: Params) -> Params:
        limit = self.phase.clip_norm
        if limit is None:
            return grads
        if not isinstance(limit, Mapping):
            return clip_by_norm(grads, limit)
        return {
            name: value
            for part in self.phase.moves
            for name, value in clip_part(grads, self.binding.names(part), limit.get(part)).items()
        }


def clip_part(grads: Params, names: list[str], limit: float | None) -> Params:
    mine = {name: grads[name] for name in names}
    return mine if limit is None else clip_by_norm(mine, limit)


def descend(problem: Problem, *, watch: Watch | None = None) -> Outcome:
    """One optimiser step per batch of the budget: the solver of nearly every phase."""
    return (problem.stepping or plain_steps)(problem, watch)


def plain_steps(problem: Problem, watch: Watch | None = None) -> Outcome:
    """The steps as they are written down; every faster way is tested against this one."""
    phase, visit, params = problem.phase, problem.visit, problem.params
    moving, watched = problem.moving_names(), problem.observed_names()
    if not moving and not watched:
        return Outcome(params, {}, torch.zeros(()), 0.0)
    scale, scaled = phase.scale(visit.facts), phase.scale(visit.facts) != 1.0
    movers = [(rule, names, rule.lr(visit.round)) for rule, names in problem.optimizers()]
    states = [rule.init({name: params[name] for name in names}) for rule, names, _ in movers]
    observed: Params = {}
    losses: list[Tensor] = []
    num_seen = 0
    for batch in problem.batches():
        grads, loss = problem.gradients(params, batch, moving + watched)
        observed = {name: grads[name] for name in watched}
        step = problem.clipped({name: grads[name] for name in moving})
        if scaled:
            step = {name: scale * value for name, value in step.items()}
        for number, (rule, names, lr) in enumerate(movers):
            mine = {name: params[name] for name in names}
            mine, states[number] = rule.update({name: step[name] for name in names}, states[number], mine, lr)
            params = params | mine
        losses.append(loss)
        num_seen += batch.num_examples
        if watch is not None:
            watch(len(losses), params)
    mean_loss = torch.stack(losses).mean() if losses else torch.zeros(())
    return Outcome(params, observed, mean_loss, num_seen / visit.data.num_examples)
