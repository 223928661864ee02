"""The steps of a phase on a chain of linear layers: by hand, one by one or with one batch again and again."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import torch
from torch import Tensor
from torch.nn import functional as F

from plures.core.problem import Outcome, Problem
from plures.core.types import Batch
from plures.engines.chains import Chain, ChainSteps, Link, chain_of, names_in
from plures.engines.paces import Mover, is_plain, paces_of
from plures.engines.repeated import RepeatedSteps
from plures.local.heads import HeadProblem


def chain_steps(problem: Problem) -> Outcome | None:
    """The steps of a phase on a chain; None where it is none, or the phase asks for more than plain steps."""
    if problem.binding.task.loss_function is not F.cross_entropy or not is_plain(problem):
        return None
    links = links_of(problem)
    if links is None or not set(problem.moving_names() + problem.observed_names()) <= names_in(links):
        return None
    if problem.visit.data.targets.dim() != 1 or problem.visit.data.targets.is_floating_point():
        return None
    return trained(problem, links)


def links_of(problem: Problem) -> Chain | None:
    """Of the network, or of its head alone where the rest was run already."""
    if type(problem) is HeadProblem:
        return (Link(weight=problem.weight, bias=problem.bias, bend="none"),)
    task = problem.binding.task
    return chain_of(task.module) if type(problem) is Problem and not task.buffers and not task.tied else None


def trained(problem: Problem, links: Chain) -> Outcome:
    paces = paces_of(problem)
    params = problem.params | {name: problem.params[name].clone() for name in paces}
    batches, same = batches_of(problem)
    steps = steps_for(problem, links, Mover(params, paces), same)
    losses: list[Tensor] = []
    num_seen = 0
    for batch in batches:
        losses.append(steps.take(batch))
        num_seen += batch.num_examples
        problem.taken.append(batch.num_examples)
    steps.finish()
    mean_loss = torch.stack(losses).mean() if losses else torch.zeros(())
    return Outcome(params, steps.observed, mean_loss, num_seen / problem.visit.data.num_examples)


def batches_of(problem: Problem) -> tuple[Iterable[Batch], int]:
    """The batches of a phase, and how many they are where each is all of the client's examples; else 0."""
    stream, whole = problem.batches(), problem.visit.data
    first = next(stream, None)
    if first is None:
        return (), 0
    if first is not whole:
        return chain((first,), stream), 0
    batches = [first, *stream]
    return batches, len(batches) if all(batch is whole for batch in batches) else 0


def steps_for(problem: Problem, links: Chain, mover: Mover, same: int) -> ChainSteps:
    """Plain steps, or those for one batch that comes again and again."""
    watched, inputs = frozenset(problem.observed_names()), problem.visit.data.inputs.flatten(1)
    if RepeatedSteps.suits(links, mover, same, inputs):
        return RepeatedSteps(links, mover, watched, inputs)
    return ChainSteps(links, mover, watched)
