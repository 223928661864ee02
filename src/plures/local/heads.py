"""Solvers for a phase that moves only the network's last linear layer.

While nothing before the head moves, its inputs (the features) stay the same: one pass computes them, and
every step of the phase works on them alone. For cross-entropy, P = softmax(features W^T + b) and one-hot
targets Y, the gradient is (P - Y)^T [features, 1] / n: no network and no autograd.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.core.method import Phase, own_parameters
from plures.core.problem import Outcome, Problem, descend
from plures.core.program import Binding
from plures.core.types import Batch, Params

__all__ = ["HeadProblem", "cached_descent", "on_features"]


@dataclass(frozen=True, kw_only=True)
class HeadProblem(Problem):
    """A problem whose inputs are features and whose network is the head alone."""

    weight: str
    bias: str | None

    def logits(self, params: Params, features: Tensor) -> Tensor:
        return F.linear(features, params[self.weight], None if self.bias is None else params[self.bias])

    def loss(self, params: Params, batch: Batch) -> Tensor:
        return F.cross_entropy(self.logits(params, batch.inputs), batch.targets)

    def gradients(self, params: Params, batch: Batch, names: list[str]) -> tuple[Params, Tensor]:
        """The closed form above, and the loss at that point."""
        logits = self.logits(params, batch.inputs)
        error = torch.softmax(logits, dim=1)
        rows = torch.arange(batch.num_examples, device=error.device)
        loss = torch.logsumexp(logits, dim=1).mean() - logits[rows, batch.targets].mean()
        error[rows, batch.targets] -= 1.0
        error /= batch.num_examples
        grads = {self.weight: error.T @ batch.inputs}
        if self.bias is not None:
            grads[self.bias] = error.sum(dim=0)
        return grads, loss


def cached_descent(problem: Problem) -> Outcome:
    """`descend` on features computed once, where that is the same thing; plain `descend` elsewhere."""
    try:
        on_head = on_features(problem)
    except InvalidModel:
        return descend(problem)
    return descend(on_head)._replace(passes=1.0, forward_passes=1.0)


def on_features(problem: Problem) -> HeadProblem:
    """The same problem with one pass through the network behind it, or an error that says why not."""
    layer, weight, bias = find_head(problem.phase, problem.binding)
    check_phase(problem.phase, problem.binding)
    data = Batch(features_of(problem, layer), problem.visit.data.targets)
    return HeadProblem(
        phase=problem.phase,
        visit=replace(problem.visit, data=data),
        binding=problem.binding,
        params=problem.params,
        stepping=problem.stepping,
        weight=weight,
        bias=bias,
    )


def find_head(phase: Phase, binding: Binding) -> tuple[nn.Linear, str, str | None]:
    """The one linear layer that the phase moves, with the names of its weight and bias."""
    moving = binding.names(*phase.moves)
    for prefix, layer in binding.task.module.named_modules():
        if type(layer) is nn.Linear and not layer._forward_hooks:  # a subclass or a hook may compute something else
            own = {name.rpartition(".")[2]: name for name, _ in layer.named_parameters(prefix, recurse=False)}
            if own and sorted(own.values()) == sorted(moving):
                return layer, own["weight"], own.get("bias")
    raise InvalidModel(f"The part '{phase.name}' ({', '.join(moving) or 'empty'}) is not one linear layer.")


def check_phase(phase: Phase, binding: Binding) -> None:
    """Refuse what would make features differ from step to step, or the loss from cross-entropy of the head."""
    if binding.task.loss_function is not F.cross_entropy:
        raise InvalidModel("The closed form of the head needs cross-entropy as the loss.")
    if phase.view is not own_parameters or phase.penalty is not None or phase.observe is not None:
        raise InvalidModel("The closed form of the head allows no view, penalty or observed part in its phase.")
    if binding.task.augment is not None:
        raise InvalidModel("Examples are augmented in each step, so their features would not stay still.")
    if binding.task.moving_buffers or binding.task.tied:
        raise InvalidModel("The network has running statistics or tied weights, so its features would not stay still.")


def features_of(problem: Problem, layer: nn.Linear) -> Tensor:
    """What the head receives for every example, once it is sure that they are all the head depends on."""
    before = torch.get_rng_state()
    features = head_inputs(problem, layer, problem.visit.data.inputs)
    if not torch.equal(before, torch.get_rng_state()):
        torch.set_rng_state(before)
        raise InvalidModel("The network draws random numbers (dropout), so each pass gives other features.")
    if in_mini_batches(problem):
        # Two examples alone must have the features they have among all others.
        alone = head_inputs(problem, layer, problem.visit.data.inputs[:2])
        if not torch.allclose(alone, features[:2], rtol=1e-4, atol=1e-6):
            raise InvalidModel("The features of an example depend on the other examples of its batch.")
    return features


def head_inputs(problem: Problem, layer: nn.Linear, inputs: Tensor) -> Tensor:
    task, calls = problem.binding.task, list[tuple[Tensor, Tensor]]()
    watched = {name: problem.params[name].detach().requires_grad_() for name in problem.moving_names()}
    hook = layer.register_forward_hook(lambda _, given, output: calls.append((given[0], output)))
    try:
        # Only the head's own parameters ask for gradients, so a graph before the head shows that they are used there.
        output = task.output(problem.params | watched, inputs)
    finally:
        hook.remove()
    if len(calls) != 1 or calls[0][1] is not output or calls[0][0].dim() != 2 or calls[0][0].requires_grad:
        raise InvalidModel("The personal linear layer is not the last step of the network, or is used elsewhere too.")
    return calls[0][0]


def in_mini_batches(problem: Problem) -> bool:
    budget, size = problem.phase.budget, problem.visit.data.num_examples
    return next(iter(budget.batches(size, torch.Generator())), None) is not None
