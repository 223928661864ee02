"""One step of several clients at once: networks by vmap, gradients by autograd, and any optimiser of `local`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.func import vmap

from plures.core.method import Optimizer, OptimizerState
from plures.core.problem import Problem
from plures.core.types import Params
from plures.engines.stacked_batches import StackedBatch
from plures.engines.stacked_losses import StackedLoss
from plures.engines.stacked_penalties import memory_of
from plures.engines.stacking import Stack, per_client, stacked
from plures.local.optimizers import Sgd


class Steps(Protocol):
    """Takes steps on a stack of clients that it owns."""

    @property
    def stack(self) -> Stack: ...

    def take(self, batch: StackedBatch) -> tuple[Tensor, Params]:
        """One step of the first clients, as many as the batch is of: their losses, and the gradients they observe."""


class MappedSteps:
    """Steps of any network, view, penalty and optimiser that can be mapped."""

    def __init__(self, problems: Sequence[Problem], loss: StackedLoss) -> None:
        problem = problems[0]
        self.problem, self.loss = problem, loss
        self.moving, self.watched = problem.moving_names(), problem.observed_names()
        self.stack = stacked([one.params for one in problems], copied=self.moving, apart=self.watched)
        self.movers = [(rule, names, rule.lr(problem.visit.round)) for rule, names in problem.optimizers()]
        self.states = [rule.init({name: self.stack.own[name] for name in names}) for rule, names, _ in self.movers]
        self.scales = scales_of(problems)
        self.memory = memory_of(problems)

    def take(self, batch: StackedBatch) -> tuple[Tensor, Params]:
        active = len(batch.targets)
        own = self.stack.first(active)
        grads, losses = self.gradients(own, batch)
        step = {name: grads[name] for name in self.moving}
        if self.problem.phase.clip_norm is not None and step:
            step = vmap(self.problem.clipped)(step)
        if self.scales is not None:
            step = {name: scaled(value, self.scales[:active]) for name, value in step.items()}
        for number, (rule, names, lr) in enumerate(self.movers):
            state = first_states(self.states[number], active)
            self.states[number] = move(rule, names, lr, step, state, own)
        return losses, {name: grads[name] for name in self.watched}

    def gradients(self, own: Params, batch: StackedBatch) -> tuple[Params, Tensor]:
        """Everybody's gradients: those of the sum, for a client's loss is its own parameters' alone."""
        leaves = {name: own[name].detach().requires_grad_() for name in self.moving + self.watched}
        losses = self.losses(own | leaves, batch)
        grads = torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, grads, strict=True)), losses.detach()

    def losses(self, own: Params, batch: StackedBatch) -> Tensor:
        result = self.loss(self.outputs(own, batch.inputs), batch.targets, batch.real)
        if self.memory is not None:
            result = result + self.memory.penalties(own, self.stack.common, len(batch.targets))
        return result

    def outputs(self, own: Params, inputs: Tensor) -> Tensor:
        task, view, common = self.problem.binding.task, self.problem.phase.view, self.stack.common

        def one(params: Params, examples: Tensor) -> Tensor:
            return task.output(view(params | common, examples), examples)

        result: Tensor = vmap(one)(own, inputs)
        return result


def first_states(state: OptimizerState, active: int) -> OptimizerState:
    """The state of the first clients; a counter is the same for all that are active."""
    return {
        group: {name: value[:active] if value.dim() else value for name, value in tensors.items()}
        for group, tensors in state.items()
    }


def move(
    rule: Optimizer, names: Sequence[str], lr: float, step: Params, state: OptimizerState, own: Params
) -> OptimizerState:
    """One update of some names, in place."""
    if type(rule) is Sgd and not rule.momentum and not rule.weight_decay:
        for name in names:
            own[name].add_(step[name], alpha=-lr)
        return state
    moved, state = rule.update({n: step[n] for n in names}, state, {n: own[n] for n in names}, lr)
    for name, value in moved.items():
        own[name].copy_(value)
    return state


def scales_of(problems: Sequence[Problem]) -> Tensor | None:
    """What each client multiplies its gradients by; None: nobody does."""
    scales = [problem.phase.scale(problem.visit.facts) for problem in problems]
    like = next(iter(problems[0].params.values()))
    return None if set(scales) == {1.0} else torch.tensor(scales, dtype=torch.float64, device=like.device)


def scaled(values: Tensor, scales: Tensor) -> Tensor:
    return per_client(scales.to(values.dtype), values) * values
