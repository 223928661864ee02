"""A phase of several clients in lockstep: step by step all of them at once, each on its own batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plures.core.method import Phase
from plures.core.problem import Outcome, Problem
from plures.core.program import Binding
from plures.core.types import CONSTANT_BUFFERS, Params
from plures.core.visit import Visit
from plures.engines.stacked_batches import StackedBatches, places_of
from plures.engines.stacked_chain import ChainSteps, chain_for
from plures.engines.stacked_losses import stacked_loss
from plures.engines.stacked_steps import MappedSteps, Steps
from plures.engines.stacking import taken_apart


def lockstep(phase: Phase, binding: Binding, visits: Sequence[Visit], params: Sequence[Params]) -> list[Outcome]:
    """What the phase leaves behind on each client, in their order."""
    binding.task.train(True)
    # Each client has copies of them, for layers may write there; those of networks in lockstep do not.
    constants = {name: binding.values[name] for name in binding.names(CONSTANT_BUFFERS)}
    problems = [
        Problem(phase=phase, visit=visit, binding=binding, params=mine | constants)
        for visit, mine in zip(visits, params, strict=True)
    ]
    moves = problems[0].moving_names() or problems[0].observed_names()
    places = [places_of(problem) if moves else [] for problem in problems]
    # Those with most updates first: whoever still has one is then at the beginning of the stack.
    order = sorted(range(len(problems)), key=lambda client: -len(places[client]))
    busy = [client for client in order if places[client]]
    done = dict(zip(busy, run([problems[c] for c in busy], [places[c] for c in busy]), strict=True)) if busy else {}
    idle = Outcome({}, {}, torch.zeros(()), 0.0)
    found = [done.get(client, idle) for client in range(len(problems))]
    return [one._replace(params=mine | one.params) for one, mine in zip(found, params, strict=True)]


def run(problems: Sequence[Problem], places: Sequence[list[Tensor | None]]) -> list[Outcome]:
    """All steps of clients that are sorted by their number of updates; of the parameters, what has moved."""
    steps, batches = steps_for(problems), StackedBatches(problems, places)
    watched = problems[0].observed_names()
    observed: list[Params] = [{} for _ in problems]
    totals: Tensor | None = None
    for step in range(batches.num_updates[0]):
        losses, grads = steps.take(batches.take(step))
        if totals is None:
            totals = torch.zeros_like(losses)
        totals[: len(losses)] += losses
        if watched:
            for client in range(num_going_on(batches, step), len(losses)):
                observed[client] = taken_apart(grads, client)
    assert totals is not None  # everybody here has an update
    return outcomes(problems, steps, batches, observed, totals)


def num_going_on(batches: StackedBatches, step: int) -> int:
    """How many clients this step is not the last one of."""
    return batches.num_active(step + 1)


def steps_for(problems: Sequence[Problem]) -> Steps:
    """By hand where the network is a chain that is trained by plain steps, else by autograd."""
    links = chain_for(problems)
    if links is not None:
        return ChainSteps(problems, links)
    loss = stacked_loss(problems[0].binding.task.loss_function)
    if loss is None:
        raise TypeError("a loss that is not known to be a mean over examples cannot be padded")
    return MappedSteps(problems, loss)


def outcomes(
    problems: Sequence[Problem], steps: Steps, batches: StackedBatches, observed: Sequence[Params], totals: Tensor
) -> list[Outcome]:
    moved = {name: steps.stack.own[name] for name in problems[0].moving_names()}
    return [
        Outcome(
            params=taken_apart(moved, client),
            observed=observed[client],
            loss=totals[client] / batches.num_updates[client],
            passes=batches.num_seen(client) / problem.visit.data.num_examples,
        )
        for client, problem in enumerate(problems)
    ]
