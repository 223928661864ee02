"""Chains of linear layers, of several clients at once: products of stacks of matrices, steps straight into the weights.

The gradients of all clients' weights are more than a cache holds; here they are never written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from plures.core.method import own_parameters
from plures.core.problem import Problem
from plures.core.types import Params
from plures.engines.chains import Chain, Link, chain_of, names_in
from plures.engines.stacked_batches import StackedBatch
from plures.engines.stacked_penalties import pull_of
from plures.engines.stacked_steps import scaled, scales_of
from plures.engines.stacking import stacked
from plures.local.masks import masked, masks_in
from plures.local.optimizers import Sgd
from plures.local.views import original, twin, twin_of


def chain_for(problems: Sequence[Problem]) -> Chain | None:
    """The chain that a phase trains by plain steps; None where it is none, or the phase asks for more."""
    problem = problems[0]
    phase, task, targets = problem.phase, problem.binding.task, problem.visit.data.targets
    if phase.observe is not None or phase.clip_norm is not None or targets.dim() != 1 or targets.is_floating_point():
        return None
    if task.loss_function is not F.cross_entropy or task.tied or task.buffers:
        return None
    if not all(type(rule) is Sgd and not rule.momentum for rule, _ in problem.optimizers()):
        return None
    links = chain_of(task.module)
    seen = None if links is None or not fits(links, problem) else links_seen(links, problems)
    return seen if seen and set(problem.moving_names()) <= names_in(seen) else None


def fits(links: Chain, problem: Problem) -> bool:
    """Whether each layer is met once, the last one gives the scores, and the first one takes whole examples."""
    once = len({link.weight for link in links}) == len(links) and links[-1].bend == "none"
    return once and problem.params[links[0].weight].shape[1] == problem.visit.data.inputs[:1].numel()


def links_seen(links: Chain, problems: Sequence[Problem]) -> Chain | None:
    """The chain by the names of what the phase's view shows; None of a view that is not known here."""
    view, params = problems[0].phase.view, problems[0].params
    if view in (own_parameters, original):
        return links
    if view is twin:
        return tuple(
            replace(link, weight=twin_in(link.weight, params), bias=link.bias and twin_in(link.bias, params))
            for link in links
        )
    alone = view is masked and problems[0].phase.penalty is None  # which could move what the masks leave out
    return links if alone and all(is_masked(problem.params) for problem in problems) else None


def twin_in(name: str, params: Params) -> str:
    return twin_of(name) if twin_of(name) in params else name


def is_masked(params: Params) -> bool:
    """Whether what masks leave out is zero already, so that a view by them changes nothing."""
    return all(not bool((params[name] * ~mask).any()) for name, mask in masks_in(params).items())


class ChainSteps:
    """Forward, backward and the step, layer by layer, on a stack that is changed in place."""

    def __init__(self, problems: Sequence[Problem], links: Chain) -> None:
        problem = problems[0]
        self.links = links
        self.moving = problem.moving_names()
        self.stack = stacked([one.params for one in problems], copied=self.moving)
        self.rates: dict[str, tuple[float, float]] = {}
        """Of each name that moves, its rate and its weight decay."""
        for rule, names in problem.optimizers():
            decay = rule.weight_decay if isinstance(rule, Sgd) else 0.0
            self.rates |= dict.fromkeys(names, (rule.lr(problem.visit.round), decay))
        lowest = [number for number, link in enumerate(links) if link.weight in self.rates or link.bias in self.rates]
        self.lowest = min(lowest, default=len(links))
        """Below it nothing moves, so no gradient is carried on."""
        self.scales, self.pull = scales_of(problems), pull_of(problems)
        masks = masks_in(self.stack.own | self.stack.common) if problem.phase.view is masked else {}
        self.masks = {name: masks[name].to(self.stack.own[name].dtype) for name in self.rates if name in masks}
        """Of what moves, what may be other than zero."""
        self.common_masks = masks_in(self.stack.common)

    def take(self, batch: StackedBatch) -> tuple[Tensor, Params]:
        active = len(batch.targets)
        own = self.stack.first(active)
        params, pulls, penalties = self.stack.common | own, dict[str, Tensor](), None
        if self.pull is not None:
            pulls, penalties = self.pull.gradients(own, self.stack.common, self.moving, active)
        inputs = self.forward(params, batch.inputs.flatten(2))
        losses, error = errors(inputs.pop(), batch)
        if self.scales is not None:
            error = scaled(error, self.scales[:active])
            pulls = {name: scaled(value, self.scales[:active]) for name, value in pulls.items()}
        self.backward(params, error, inputs)
        for name, value in pulls.items():
            params[name].add_(value, alpha=-self.rates[name][0])
        for name, mask in self.masks.items():
            params[name].mul_(mask if name in self.common_masks else mask[:active])
        return losses if penalties is None else losses + penalties, {}

    def forward(self, params: Params, inputs: Tensor) -> list[Tensor]:
        """What each layer is given, and what the last one gives."""
        found = [inputs]
        for link in self.links:
            output = self.linear(params, link, found[-1])
            found.append(output.relu_() if link.bend == "relu" else output.tanh_() if link.bend == "tanh" else output)
        return found

    def linear(self, params: Params, link: Link, inputs: Tensor) -> Tensor:
        weight, bias = params[link.weight], None if link.bias is None else params[link.bias]
        if weight.dim() == 2 and (bias is None or bias.dim() == 1):
            return F.linear(inputs, weight, bias)
        if bias is None or weight.dim() == 2:
            product = inputs @ weight.mT
            return product if bias is None else product + bias.unsqueeze(1)
        return torch.baddbmm(bias.unsqueeze(-2), inputs, weight.mT)

    def backward(self, params: Params, error: Tensor, inputs: list[Tensor]) -> None:
        """From the error of the last layer down to the lowest that moves; each layer steps once it was passed."""
        for number in range(len(self.links) - 1, self.lowest - 1, -1):
            link, given = self.links[number], inputs[number]
            if number < len(self.links) - 1:
                unbend(error, inputs[number + 1], link)
            below = error @ params[link.weight] if number > self.lowest else None
            if link.weight in self.rates:
                lr, decay = self.rates[link.weight]
                params[link.weight].baddbmm_(error.mT, given, beta=1.0 - lr * decay, alpha=-lr)
            if link.bias in self.rates:
                lr, decay = self.rates[link.bias]
                bias = params[link.bias].mul_(1.0 - lr * decay) if decay else params[link.bias]
                bias.add_(error.sum(dim=1), alpha=-lr)
            if below is not None:
                error = below


def errors(outputs: Tensor, batch: StackedBatch) -> tuple[Tensor, Tensor]:
    """Each client's cross-entropy, and its gradient by the outputs."""
    likely = torch.log_softmax(outputs, dim=2)
    places, weights = batch.targets.unsqueeze(2), shares(batch, likely)
    losses = -(likely.gather(2, places) * weights).sum(dim=(1, 2))
    error = likely.exp_()
    error.scatter_add_(2, places, torch.full_like(places, -1, dtype=error.dtype))
    return losses, error.mul_(weights)


def shares(batch: StackedBatch, like: Tensor) -> Tensor:
    """What each example counts in its client's mean."""
    if batch.real is None:
        return like.new_full((1, 1, 1), 1.0 / batch.targets.shape[1])
    real = batch.real.to(like.dtype)
    return (real / real.sum(dim=1, keepdim=True)).unsqueeze(2)


def unbend(error: Tensor, output: Tensor, link: Link) -> None:
    if link.bend == "relu":
        error.mul_(output > 0)
    elif link.bend == "tanh":
        error.mul_(1 - output * output)
