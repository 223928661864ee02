"""Expectation and maximisation on one client, for a mixture of networks whose shares are the client's own.

The loss of an example is taken for minus the logarithm of its likelihood. With pi the shares of the components,
q_jm = pi_m exp(-loss_jm) / sum_l pi_l exp(-loss_jl) says how much example j belongs to component m.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.modules.batchnorm import _NormBase

from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.layout import PORTION, shown_by_channels
from plures.core.problem import Outcome, Problem, descend
from plures.core.types import RESET_BUFFERS, Batch, Params, Part

__all__ = ["MIXING", "ExpectationMaximisation", "ShareSteps", "belonging", "losses_apart", "mixture_loss"]

MIXING: Part = "mixing"
"""Part and name of the shares."""
APART = "apart"
COMPONENTS = "components."
EXAMPLES_AT_ONCE = PORTION


def belonging(losses: Tensor, shares: Tensor) -> Tensor:
    """q of every example, from its losses under the components: the E step."""
    return torch.softmax(log_of(shares) - losses, dim=1)


def mixture_loss(losses: Tensor, shares: Tensor) -> Tensor:
    """The mean over examples of -log sum_m pi_m exp(-loss_jm)."""
    return -torch.logsumexp(log_of(shares) - losses, dim=1).mean()


def log_of(shares: Tensor) -> Tensor:
    return shares.clamp_min(torch.finfo(shares.dtype).tiny).log()


@torch.no_grad()
def losses_apart(problem: Problem) -> Tensor:
    """The loss of each of the client's examples, under each component as evaluation sees it: (examples, components)."""
    task, data = problem.binding.task, problem.visit.data
    each = vmap(vmap(lambda output, target: task.loss_function(output[None], target[None])), in_dims=(0, None))
    with evaluating(problem) as (params, at_once):
        params = shown_by_channels(task, params, data.inputs)
        batches = zip(torch.split(data.inputs, at_once), torch.split(data.targets, at_once), strict=True)
        losses = [each(task.ask(APART, params, inputs)[APART], targets) for inputs, targets in batches]
    found = torch.cat(losses, dim=1).T
    # A sequence that is all padding has no loss: it belongs to no component more than to others.
    return torch.where(found.isnan().all(dim=1, keepdim=True), torch.zeros_like(found), found)


@contextmanager
def evaluating(problem: Problem) -> Iterator[tuple[Params, int]]:
    """Evaluation mode for a while: parameters, and how many examples to take at once.

    Norms whose statistics are forgotten after each visit have none yet, and take those of all the client's examples.
    """
    task, size = problem.binding.task, problem.visit.data.num_examples
    forgotten = {name: problem.params[name].clone() for name in problem.binding.names(RESET_BUFFERS)}
    norms = [layer for layer in task.trained_layers() if isinstance(layer, _NormBase) and forgotten and size > 1]
    task.train(False)
    try:
        for layer in norms:
            layer.training = True
        yield problem.params | forgotten, size if norms else EXAMPLES_AT_ONCE
    finally:
        for layer in norms:
            layer.training = False
        task.train(True)


@dataclass(frozen=True, kw_only=True)
class Weighted(Problem):
    """Trains all components at once, each on every example as far as that belongs to it.

    The targets of its data are places in `targets` and in `belongs`, so that batches are those of any other problem.
    """

    targets: Tensor
    belongs: Tensor

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """The losses of all components, added; in their gradients, every example counts by what belongs to them.

        So it does for any loss that is a mean over examples, or over their tokens.
        """
        task, targets = self.binding.task, self.targets[batch.targets]
        outputs = task.ask(APART, params, batch.inputs)[APART]
        shown = zip(outputs, self.belongs[batch.targets].T, strict=True)
        return torch.stack([task.loss_function(counted(output, q), targets) for output, q in shown]).sum()

    def clipped(self, grads: Params) -> Params:
        """Each component by itself."""
        groups: dict[str, Params] = {}
        for name, value in grads.items():
            groups.setdefault(name.removeprefix(COMPONENTS).partition(".")[0], {})[name] = value
        limited = [super(Weighted, self).clipped(group) for group in groups.values()]
        return {name: value for group in limited for name, value in group.items()}


def counted(output: Tensor, q: Tensor) -> Tensor:
    """The output itself, whose gradient is multiplied by q of each example."""
    still = output.detach()
    return still + q.view(-1, *[1] * (output.dim() - 1)) * (output - still)


@dataclass(frozen=True, kw_only=True)
class ExpectationMaximisation:
    """E step on all examples, new shares, then the phase's steps on the components, with q held still.

    The loss it tells is the mixture's before all that.
    """

    real: bool
    """Whether networks give values, and not classes."""

    def __call__(self, problem: Problem) -> Outcome:
        losses, shares, data = losses_apart(problem), problem.params[MIXING], problem.visit.data
        belongs = belonging(losses, shares)
        places = Batch(data.inputs, torch.arange(data.num_examples, device=data.targets.device))
        weighted = vars(problem) | {
            "visit": replace(problem.visit, data=places),
            "params": problem.params | {MIXING: belongs.mean(dim=0)},
        }
        done = descend(Weighted(**weighted, targets=data.targets, belongs=belongs))
        return done._replace(loss=mixture_loss(losses, shares), passes=done.passes + 1.0, forward_passes=1.0)

    def check(self, problem: Problem) -> None:
        """Whether targets are what the networks are said to give, and the loss can be had of each example."""
        data = problem.visit.data
        if data.targets.is_floating_point() != self.real:
            found, word = ("classes", "classes") if self.real else ("real numbers", "values")
            raise InvalidConfig(f"The targets are {found}: a mixture of networks for them needs outputs = '{word}'.")
        few = Batch(data.inputs[:2], data.targets[:2])
        try:
            losses_apart(replace(problem, visit=replace(problem.visit, data=few)))
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise InvalidModel(
                f"A mixture needs the loss of each example by itself, but torch.func.vmap cannot take it: {error}. "
                "Give a loss of tensor operations that is a mean over examples."
            ) from error


@dataclass(frozen=True, kw_only=True)
class ShareSteps:
    """E steps and new shares, again and again; the components hold still."""

    count: int

    def __call__(self, problem: Problem) -> Outcome:
        losses, shares = losses_apart(problem), problem.params[MIXING]
        first = mixture_loss(losses, shares)
        for _ in range(self.count):
            shares = belonging(losses, shares).mean(dim=0)
        return Outcome(problem.params | {MIXING: shares}, {}, first, 1.0, 1.0)
