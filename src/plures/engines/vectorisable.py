"""Whether a phase can be taken by several clients in lockstep, and if not, why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from plures.core.client import arrival
from plures.core.method import Phase
from plures.core.problem import Problem, eager_gradient
from plures.core.program import Binding, Program
from plures.core.types import Batch
from plures.core.visit import Visit
from plures.engines.stacked_batches import StackedBatch
from plures.engines.stacked_losses import StackedLoss, stacked_loss
from plures.engines.stacked_steps import MappedSteps
from plures.local.optimizers import Adam, Sgd

FAILURES = (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""What networks, losses and data raise."""
TRIED = 2
"""Examples of a trial."""
DROPPING = (nn.modules.dropout._DropoutNd, nn.RNNBase)


def why_not(program: Program, phase: Phase, visit: Visit) -> str | None:
    """Why the clients of this visit's kind take the phase one after another; None: they can take it in lockstep."""
    binding = program.binding(visit.client)
    return (
        why_not_method(program, phase)
        or why_not_network(binding)
        or why_not_optimizer(phase)
        or why_not_in_trial(phase, binding, visit)
    )


def why_not_method(program: Program, phase: Phase) -> str | None:
    if phase.solver is not None:
        return "the phase has a solver of its own"
    if program.method.wrap is not None:
        return "the method builds a network of its own around the one that is given"
    return None


def why_not_network(binding: Binding) -> str | None:
    """What is known without running it."""
    task = binding.task
    if task.needs_pairs or task.moving_buffers:
        return "the network has statistics of its batches, such as batch normalisation"
    if any(isinstance(layer, DROPPING) and drops(layer) for layer in task.trained_layers()):
        return "the network draws at random in training, such as dropout"
    if stacked_loss(task.loss_function) is None:
        return "the loss is neither cross-entropy nor the squared error, so batches cannot be filled up"
    return None


def drops(layer: nn.Module) -> bool:
    rate = getattr(layer, "p", None)
    return float(getattr(layer, "dropout", 0.0) if rate is None else rate) > 0.0


def why_not_optimizer(phase: Phase) -> str | None:
    chosen = phase.optimizer
    rules = list(chosen.values()) if isinstance(chosen, Mapping) else [chosen]
    others = [type(rule).__name__ for rule in rules if type(rule) not in (Sgd, Adam)]
    return f"{others[0]} is not an optimiser of plures.local" if others else None


def why_not_in_trial(phase: Phase, binding: Binding, visit: Visit) -> str | None:
    """What a few examples of one client show, taken as two clients; nothing of it is kept."""
    loss = stacked_loss(binding.task.loss_function)
    if loss is None or visit.data.num_examples == 0:
        return "there are no examples to try it with"
    binding.task.train(True)
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            return tried(phase, binding, visit, loss)
    except FAILURES as error:
        return f"a trial failed with {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no words'}"


def tried(phase: Phase, binding: Binding, visit: Visit, loss: StackedLoss) -> str | None:
    few = Batch(visit.data.inputs[:TRIED], visit.data.targets[:TRIED])
    params = {name: value.clone() for name, value in arrival(binding, visit).items()}
    problem = Problem(phase=phase, visit=replace(visit, data=few), binding=binding, params=params)
    names = problem.moving_names() + problem.observed_names()
    before = {name: value._version for name, value in params.items()}
    if not names:
        return None
    steps = MappedSteps([problem, problem], loss)
    inputs, targets = (torch.stack([filled_up(value)] * 2) for value in few)
    real = (torch.arange(len(targets[0])) < few.num_examples).to(targets.device).expand(2, -1)
    grads, losses = steps.gradients(steps.stack.own, StackedBatch(inputs, targets, real))
    expected, alone = eager_gradient(lambda point: problem.loss(params | point, few), {n: params[n] for n in names})
    if any(value._version != before[name] for name, value in params.items()):
        return "the network writes into its own buffers"
    near = [close(grads[name][1], expected[name]) for name in names] + [close(losses[1], alone)]
    return None if all(near) else "what the network makes of an example depends on the others of its batch"


def filled_up(examples: Tensor) -> Tensor:
    """One example more than there are, which must not matter."""
    return torch.cat([examples, examples[:1]])


def close(found: Tensor, wanted: Tensor) -> bool:
    """Equal but for roundings."""
    eps = torch.finfo(wanted.dtype).eps
    return bool((found - wanted).norm() <= eps**0.5 * wanted.norm() + eps)
