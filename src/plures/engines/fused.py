"""The steps of a phase without needless copies: parameters of the engine's own, changed in place."""

from __future__ import annotations

import torch
from torch import Tensor

from plures.core.problem import Outcome, Problem, Watch, plain_steps
from plures.core.types import Params
from plures.engines.chain_phases import chain_steps
from plures.engines.head_steps import head_steps
from plures.engines.movers import can_move, mover_of


def fused_steps(problem: Problem, watch: Watch | None = None) -> Outcome:
    """As `plain_steps`, faster where that can be; who watches the steps sees them taken plainly."""
    if watch is not None or not problem.moving_names():
        return plain_steps(problem, watch)
    for by_hand in (head_steps, chain_steps):
        done = by_hand(problem)
        if done is not None:
            return done
    return in_place_steps(problem)


def in_place_steps(problem: Problem) -> Outcome:
    """Gradients by autograd, steps straight into copies that are made once."""
    phase, visit = problem.phase, problem.visit
    moving, watched = problem.moving_names(), problem.observed_names()
    rules = problem.optimizers()
    if not all(can_move(rule, [problem.params[name] for name in names]) for rule, names in rules):
        return plain_steps(problem)
    scale = phase.scale(visit.facts)
    own = {name: problem.params[name].clone() for name in moving}
    movers = [mover_of(rule, names, own, visit.round) for rule, names in rules]
    params = problem.params | own
    observed: Params = {}
    losses: list[Tensor] = []
    num_seen = 0
    for batch in problem.batches():
        grads, loss = problem.gradients(params, batch, moving + watched)
        observed = {name: grads[name] for name in watched}
        step = problem.clipped({name: grads[name] for name in moving})
        for mover in movers:
            mover.move([step[name] for name in mover.names], scale)
        losses.append(loss)
        num_seen += batch.num_examples
    mean_loss = torch.stack(losses).mean() if losses else torch.zeros(())
    return Outcome(params, observed, mean_loss, num_seen / visit.data.num_examples)
