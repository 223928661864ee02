"""The round of a hypernetwork: what clients upload moves it, and their embeddings; of newcomers, these alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from plures.core.adapting import Newcomer
from plures.core.client import arrival
from plures.core.clipping import clip_by_norm
from plures.core.context import RoundContext, RoundOutcome, Server
from plures.core.gather import Arrival, Gathering
from plures.core.method import Optimizer, OptimizerState
from plures.core.rates import check_count, check_positive
from plures.core.round import server_rules
from plures.core.seeds import generator
from plures.core.sums import Sum, accumulate, empty_sum
from plures.core.types import Params
from plures.core.visit import Upload, Visit
from plures.server.hypernetwork import EMBEDDING, MEAN, generated, memory_name, pulled_back, pulled_to_embedding

__all__ = ["EmbeddingSteps", "HyperRound"]

States = Mapping[int, Params]
"""What clients keep, by their numbers."""


@dataclass(frozen=True, kw_only=True)
class HyperRound:
    """A round whose server step goes through the hypernetwork."""

    one_by_one: bool = True
    """Each client's model is made after the step for the client before; else all at once, and one step for all."""
    clip_norm: float | None = None
    """Largest norm of the server's gradient."""

    def __post_init__(self) -> None:
        if self.clip_norm is not None:
            check_positive("the largest norm of the server's gradient", self.clip_norm)

    def __call__(self, context: RoundContext) -> RoundOutcome:
        whole, server, buffers = Gathering(context), context.server, empty_sum()
        examples = context.examples_wanted()
        for clients in self.turns(context):
            some = Gathering(turn_of(context, server, clients, examples))
            some.tally = whole.tally
            arrivals = (arrival for block in some.blocks() for arrival in block)
            grads = mean_gradient(server.shared, noting_buffers(arrivals, buffers), len(clients))
            if not some.states:
                continue
            server, moved = self.stepped(
                context, server, made_up_for(grads, len(clients), len(some.states)), some.states
            )
            whole.states |= moved
        shared = averaged(server.shared, buffers)
        shared = shared | generated(shared, shared[MEAN]) if whole.states else shared
        return whole.outcome(replace(server, round=context.round, shared=shared))

    def turns(self, context: RoundContext) -> list[tuple[int, ...]]:
        """Who is visited together; the order of turns is drawn, for the last client has the last word."""
        if not self.one_by_one:
            return [context.clients] if context.clients else []
        clients, draws = sorted(context.clients), generator(context.program.seed, "turns", context.round)
        return [(clients[place],) for place in torch.randperm(len(clients), generator=draws).tolist()]

    def stepped(
        self, context: RoundContext, server: Server, grads: Params, states: States
    ) -> tuple[Server, dict[int, Params]]:
        """The server after a step, and what these clients keep from then on."""
        ((part, rule, names),) = server_rules(context.program)
        hyper = {name: server.shared[name] for name in names}
        memory = server.optimizer[part] if part in server.optimizer else rule.init(hyper)
        limited = within(grads, self.clip_norm)
        hyper, memory, moved = joint_step(rule, rule.lr(context.round), limited, hyper, memory, states)
        changes = [moved[client][EMBEDDING] - states[client][EMBEDDING] for client in states]
        mean = server.shared[MEAN] + torch.stack(changes).sum(dim=0) / context.population.num_clients
        return replace(server, shared=server.shared | hyper | {MEAN: mean}, optimizer={part: memory}), moved


@dataclass(frozen=True, kw_only=True)
class Turn(RoundContext):
    """Some clients of a cohort; the facts they are told are of all of it."""

    cohort_examples: int
    cohort_clients: int

    def visits(self) -> Iterator[Visit]:
        for visit in super().visits():
            facts = replace(visit.facts, cohort_examples=self.cohort_examples, cohort_clients=self.cohort_clients)
            yield replace(visit, facts=facts)


def turn_of(context: RoundContext, server: Server, clients: tuple[int, ...], cohort_examples: int) -> Turn:
    now = vars(context) | {"server": server, "clients": clients, "missing": (), "wanted": None}
    return Turn(**now, cohort_examples=cohort_examples, cohort_clients=context.num_wanted)


# The step


def seat(client: int) -> str:
    """The name of a client's embedding among all that moves in one step."""
    return f"{EMBEDDING} of {client}"


def seated(states: States, name: str) -> Params:
    return {seat(client): state[name] for client, state in states.items() if name in state}


def mean_gradient(shared: Params, arrivals: Iterable[Arrival], num_clients: int) -> Params:
    """Of the clients' mean loss, as their uploads tell: by the hypernetwork and by each one's embedding."""
    total: Params = {}
    for visit, result in arrivals:
        grads = pulled_back(shared, visit.state[EMBEDDING], result.upload.values)
        grads[seat(visit.client)] = grads.pop(EMBEDDING)
        accumulate(total, grads, 1 / num_clients)
    return total


def made_up_for(grads: Params, called: int, arrived: int) -> Params:
    """The mean over those that arrived, from the sum over them divided by those that were called."""
    return grads if called == arrived else {name: grad * (called / arrived) for name, grad in grads.items()}


def within(grads: Params, limit: float | None) -> Params:
    return grads if limit is None else clip_by_norm(grads, limit)


def joint_step(
    rule: Optimizer, lr: float, grads: Params, hyper: Params, memory: OptimizerState, states: States
) -> tuple[Params, OptimizerState, dict[int, Params]]:
    """One step of the hypernetwork and of some clients' embeddings; whatever counts steps is the server's."""
    point = hyper | seated(states, EMBEDDING)
    past = {group: values | seated(states, memory_name(group)) for group, values in memory.items()}
    new, now = rule.update(grads, past, point, lr)
    moved = {client: state | taken(client, new, now) for client, state in states.items()}
    rest = {group: without_seats(values, states) for group, values in now.items()}
    return without_seats(new, states), rest, moved


def taken(client: int, new: Params, now: OptimizerState) -> Params:
    """What a step has made of a client's embedding, by the names that it has in the client's state."""
    own = {memory_name(group): values[seat(client)] for group, values in now.items() if seat(client) in values}
    return {EMBEDDING: new[seat(client)]} | own


def without_seats(values: Params, states: States) -> Params:
    seats = {seat(client) for client in states}
    return {name: value for name, value in values.items() if name not in seats}


# Newcomers


@dataclass(frozen=True, kw_only=True)
class EmbeddingSteps:
    """How a newcomer gets its model: an embedding learns from visits, and the hypernetwork makes the model of it."""

    count: int
    clip_norm: float | None = None
    """Largest norm of the embedding's gradient."""

    def __post_init__(self) -> None:
        check_count("the number of steps of a newcomer's embedding", self.count)

    def __call__(self, newcomer: Newcomer) -> Params:
        ((_, rule, _),) = server_rules(newcomer.program)
        state, memory = newcomer.state(), rule.init({})
        for round in range(1, self.count + 1):
            state, memory = self.stepped(newcomer, rule, round, state, memory)
        return arrival(newcomer.program.binding(newcomer.client), newcomer.visit(state))

    def stepped(
        self, newcomer: Newcomer, rule: Optimizer, round: int, state: Params, memory: OptimizerState
    ) -> tuple[Params, OptimizerState]:
        """One visit and one step; whatever counts steps counts those of the newcomer."""
        visit, result = newcomer.work(state, round)
        pulled = pulled_to_embedding(newcomer.server.shared, state[EMBEDDING], result.upload.values)
        grads = within({seat(visit.client): pulled}, self.clip_norm)
        _, memory, moved = joint_step(rule, rule.lr(round), grads, {}, memory, {visit.client: result.state})
        return moved[visit.client], memory


# Running statistics


def noting_buffers(arrivals: Iterable[Arrival], buffers: Sum) -> Iterator[Arrival]:
    """The same arrivals; their changes of shared running statistics are added up by examples."""
    for visit, result in arrivals:
        share = visit.facts.examples
        buffers.add(Upload(result.buffers), share=share, divisor=share, per_coordinate=False)
        yield Arrival(visit, result)


def averaged(shared: Params, buffers: Sum) -> Params:
    """The shared part with the cohort's mean running statistics; counters of batches stay whole."""
    new = {name: shared[name] - change for name, change in buffers.direction(divided=True).items()}
    whole = {name: value if shared[name].is_floating_point() else value.round() for name, value in new.items()}
    return shared | {name: value.to(shared[name].dtype) for name, value in whole.items()}
