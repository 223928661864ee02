"""One round: the cohort's work, one weighted sum, one server step.

A method whose round has another shape brings its own function from `RoundContext` to `RoundOutcome`;
it gathers the same results, from the same engine and state, and returns the same things.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from plures.core.client import Result
from plures.core.context import RoundContext, RoundOutcome, Server
from plures.core.gather import Gathering
from plures.core.method import Method, OfAllClients, Optimizer, Scale, Weight
from plures.core.program import Program
from plures.core.sums import Summing, SumsBuffers
from plures.core.types import SHARED, SHARED_BUFFERS, Facts, Part, travels
from plures.core.visit import Upload, Visit


def weighted_round(context: RoundContext) -> RoundOutcome:
    """The round of nearly every method."""
    gathering, new_sum, last = Gathering(context), context.conduct.new_sum, None
    new_buffers = new_sum.buffers if isinstance(new_sum, SumsBuffers) else new_sum
    uploads, buffers = new_sum(), new_buffers()
    for block in gathering.blocks():
        block_uploads, block_buffers = new_sum(), new_buffers()
        for visit, result in block:
            add_result(context.program.method, visit, result, block_uploads, block_buffers)
            last = visit.facts
        uploads.merge(block_uploads)
        buffers.merge(block_buffers)
        gathering.stage()
    if gathering.tally.lost and last is not None:
        uploads.scale(made_up_for(context.program.method.weight, last, gathering.tally.arrived))
    share = gathering.tally.arrived / context.num_wanted if context.num_wanted else 1.0
    return gathering.outcome(server_step(context.program, context.server, uploads, buffers, arrived_share=share))


def made_up_for(weight: Weight, facts: Facts, arrived: int) -> float:
    """By how much shares grow where some of the cohort are lost, for then a client's inclusion was smaller.

    Of exchangeable clients, `arrived` out of those that were wanted is what a client's chance of inclusion shrinks by.
    Weights that do not ask for it, and those that are divided by what arrived, are as they were.
    """
    facts = replace(facts, examples=max(1, facts.examples))  # who has no examples has no share that could grow
    fewer = replace(facts, inclusion=facts.inclusion * arrived / facts.cohort_clients)

    def growth(of: Scale) -> float:
        return of(fewer) / of(facts) if of(facts) else 1.0

    return growth(weight.share) / (1.0 if weight.per is None else growth(weight.per))


def add_result(method: Method, visit: Visit, result: Result, uploads: Summing, buffers: Summing) -> None:
    """Add one client's upload by the method's weight, and its running statistics by examples."""
    facts, weight = visit.facts, method.weight
    divisor = 0.0 if weight.per is None else weight.per(facts)
    uploads.add(result.upload, share=weight.share(facts), divisor=divisor, per_coordinate=method.per_coordinate)
    buffers.add(Upload(result.buffers), share=facts.examples, divisor=facts.examples, per_coordinate=False)


def server_step(
    program: Program, server: Server, uploads: Summing, buffers: Summing, arrived_share: float = 1.0
) -> Server:
    """Move the shared part against the summed uploads; nothing arrived: nothing moves.

    What is a mean over all clients moves by the part that the cohort has in it, of which `arrived_share` has arrived.
    """
    method = program.method
    if uploads.num_added == 0 or not server.shared:
        return Server(round=server.round + 1, shared=server.shared, optimizer=server.optimizer)
    direction = uploads.direction(divided=method.weight.per is not None)
    shared, states = dict(server.shared), dict(server.optimizer)
    for part, rule, names in server_rules(program):
        mine = {name: shared[name] for name in names}
        state = states[part] if part in states else rule.init(mine)
        grads = {name: direction.get(name, torch.zeros_like(value)) for name, value in mine.items()}
        lr = rule.lr(server.round + 1) * (arrived_share if isinstance(rule, OfAllClients) else 1.0)
        moved, states[part] = rule.update(grads, state, mine, lr)
        moved = {name: value for name, value in moved.items() if name in direction}
        shared |= {name: untouched_kept(value, mine[name], uploads.held.get(name)) for name, value in moved.items()}
    for name, change in buffers.direction(divided=True).items():
        averaged = shared[name] - change
        shared[name] = averaged.to(shared[name].dtype) if shared[name].is_floating_point() else averaged.round().long()
    return Server(round=server.round + 1, shared=shared, optimizer=states)


def untouched_kept(new: torch.Tensor, old: torch.Tensor, held: torch.Tensor | None) -> torch.Tensor:
    """What nobody held stays bitwise as it was, whatever the optimiser remembers."""
    return new if held is None else torch.where(held > 0, new, old)


def server_rules(program: Program) -> list[tuple[Part, Optimizer, list[str]]]:
    """Each server optimiser with the names it moves; running statistics are averaged apart."""
    binding, chosen = program.binding(0), program.method.server
    if not isinstance(chosen, Mapping):
        names = [n for n, part in binding.parts.items() if travels(part) and part != SHARED_BUFFERS]
        return [(SHARED, chosen, names)]
    return [(part, rule, binding.names(part)) for part, rule in chosen.items()]
