"""A hypernetwork at the server: it makes each client's model of the client's embedding, and learns from uploads.

It is in the shared part under names of its own, and none of it is ever sent. Its body is a perceptron with ReLU between
its layers; from the features that this gives, one linear layer makes each parameter of the clients' network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.clipping import clip_by_norm
from plures.core.context import RoundContext, RoundOutcome, Server
from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.gather import Arrival, Gathering
from plures.core.method import Beginning, Network, Optimizer, OptimizerState, Upload
from plures.core.rates import check_count, check_positive
from plures.core.round import server_rules
from plures.core.seeds import generator
from plures.core.sums import Sum, accumulate, empty_sum
from plures.core.types import KNOWN, SHARED, Params, Part
from plures.core.wire import Parcel

__all__ = ["EMBEDDINGS", "HYPER", "HyperRound", "Hypernetwork", "generated", "numbered", "own_model"]

HYPER: Part = "shared.hyper"
PREFIX = "hyper."
BODY = PREFIX + "body."
HEADS = PREFIX + "heads."
EMBEDDINGS = PREFIX + "embeddings"
NUMBER = PREFIX + "number"
BITS = 32
"""Binary digits of a client's number, by which the server finds its embedding."""


@dataclass(frozen=True, kw_only=True)
class Hypernetwork:
    """What a hypernetwork is like before it has learnt anything; to be used as a method's `extend`."""

    hidden: int = 100
    layers: int = 3
    """Hidden layers after the first one."""
    embedding: int | None = None
    """Numbers in an embedding; None: a quarter of the number of clients, and one."""

    def __post_init__(self) -> None:
        check_count("hidden of the hypernetwork", self.hidden, least=1)
        check_count("layers of the hypernetwork", self.layers)
        if self.embedding is not None:
            check_count("embedding of the hypernetwork", self.embedding, least=1)

    def __call__(self, network: Network) -> Mapping[Part, Params]:
        targets = {name: value for name, value in network.params.items() if network.parts[name] == SHARED}
        check_network(network, targets)
        hyper = self.first_values(targets, network.num_clients or 0)
        number = torch.zeros(BITS, dtype=torch.bool)
        return {HYPER: hyper, SHARED: mean_model(targets | hyper), KNOWN: {NUMBER: number}}

    def first_values(self, targets: Params, clients: int) -> Params:
        """As torch draws embeddings and linear layers; in double precision, to be the same for every network."""
        like, size = next(iter(targets.values())), self.embedding or int(1 + clients / 4)
        values = {EMBEDDINGS: torch.randn(clients, size, dtype=torch.float64).to(like)}
        for number in range(self.layers + 1):
            values |= drawn_layer(f"{BODY}{number}", self.hidden if number else size, self.hidden, like)
        for name, target in targets.items():
            values |= drawn_layer(HEADS + name, self.hidden, target.numel(), like)
        return values


def check_network(network: Network, targets: Params) -> None:
    if network.num_clients is None:
        raise InvalidConfig("A hypernetwork needs the number of clients: give Program(..., num_clients=...).")
    if not targets:
        raise InvalidModel("A hypernetwork has nothing to make: all parameters are personal or frozen. Share some.")
    taken = [name for name in network.parts if name.startswith(PREFIX)]
    if taken:
        raise InvalidModel(f"the model has '{taken[0]}', but '{PREFIX}' names the hypernetwork. Rename that module.")


def drawn_layer(name: str, inputs: int, outputs: int, like: Tensor) -> Params:
    layer = nn.Linear(inputs, outputs, device="cpu", dtype=torch.float64)
    return {f"{name}.weight": layer.weight.detach().to(like), f"{name}.bias": layer.bias.detach().to(like)}


# From an embedding to a model


def generated(shared: Params, embedding: Tensor) -> Params:
    """The parameters that the hypernetwork makes of an embedding, in the shapes they have in the shared part."""
    features, number = applied(shared, f"{BODY}0", embedding), 1
    while f"{BODY}{number}.weight" in shared:
        features, number = applied(shared, f"{BODY}{number}", F.relu(features)), number + 1
    return {name: applied(shared, HEADS + name, features).reshape(shared[name].shape) for name in made_names(shared)}


def applied(shared: Params, layer: str, inputs: Tensor) -> Tensor:
    return F.linear(inputs, shared[f"{layer}.weight"], shared[f"{layer}.bias"])


def made_names(shared: Params) -> list[str]:
    """What the hypernetwork makes: it has a head for each."""
    weights = [name for name in shared if name.startswith(HEADS) and name.endswith(".weight")]
    return [name.removeprefix(HEADS).removesuffix(".weight") for name in weights]


def mean_model(shared: Params) -> Params:
    """What the hypernetwork makes of the mean of all embeddings: one model for everybody."""
    return generated(shared, shared[EMBEDDINGS].mean(dim=0))


def numbered(beginning: Beginning) -> Params:
    """The start of clients that the server knows by their numbers."""
    digits = torch.tensor([bool(beginning.client >> bit & 1) for bit in range(BITS)])
    return beginning.state | {NUMBER: digits.to(beginning.state[NUMBER].device)}


def own_model(shared: Params, known: Params) -> Parcel:
    """The download: what the hypernetwork makes of the client's embedding, and shared running statistics."""
    client = sum(1 << bit for bit, digit in enumerate(known[NUMBER].tolist()) if digit)
    others = {name: value for name, value in shared.items() if not name.startswith(PREFIX)}
    return Parcel(others | generated(shared, shared[EMBEDDINGS][client]))


# From uploads to a step


def pulled_back(shared: Params, client: int, upload: Params) -> Params:
    """The upload as a gradient of the client's model, carried on to the hypernetwork and the client's embedding."""
    hyper = {name: value for name, value in shared.items() if name.startswith(PREFIX)}
    hyper[EMBEDDINGS] = hyper[EMBEDDINGS][client]
    leaves = {name: value.detach().requires_grad_() for name, value in hyper.items()}
    model = generated(shared | leaves, leaves[EMBEDDINGS])
    grads = torch.autograd.grad(list(model.values()), list(leaves.values()), [upload[name] for name in model])
    return dict(zip(leaves, grads, strict=True))


def mean_gradient(shared: Params, arrivals: Iterable[Arrival], clients: tuple[int, ...]) -> Params:
    """Of the clients' mean loss, as their uploads tell; of the embeddings, the rows of these clients in their order."""
    total, rows = dict[str, Tensor](), list[Tensor]()
    for visit, result in arrivals:
        grads = pulled_back(shared, visit.client, result.upload.values)
        rows.append(grads.pop(EMBEDDINGS) / len(clients))
        accumulate(total, grads, 1 / len(clients))
    return total | {EMBEDDINGS: torch.stack(rows)}


def moved(
    hyper: Params, state: OptimizerState, grads: Params, clients: tuple[int, ...], rule: Optimizer, lr: float
) -> tuple[Params, OptimizerState]:
    """One step of the hypernetwork and of some embeddings; the others stay bitwise, and so does their momentum."""
    past = {group: with_rows_of(values, clients) for group, values in state.items()}
    new, now = rule.update(grads, past, with_rows_of(hyper, clients), lr)
    return put_back(hyper, new, clients), {group: put_back(state[group], now[group], clients) for group in now}


def with_rows_of(values: Params, clients: tuple[int, ...]) -> Params:
    return {name: value[list(clients)] if name == EMBEDDINGS else value for name, value in values.items()}


def put_back(table: Params, values: Params, clients: tuple[int, ...]) -> Params:
    """The values, with the clients' rows of the embeddings among those of everybody."""
    if EMBEDDINGS not in values:
        return values
    rows = table[EMBEDDINGS].clone()
    rows[list(clients)] = values[EMBEDDINGS]
    return values | {EMBEDDINGS: rows}


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
        for clients in self.turns(context):
            some = Gathering(replace(context, server=server, clients=clients))
            some.tally, some.states = whole.tally, whole.states
            arrivals = (arrival for block in some.blocks() for arrival in block)
            grads = mean_gradient(server.shared, noting_buffers(arrivals, buffers), clients)
            server = self.stepped(context, server, grads, clients)
        shared = averaged(server.shared, buffers)
        shared = shared | mean_model(shared) if context.clients else shared
        return whole.outcome(replace(server, round=context.round, shared=shared))

    def turns(self, context: RoundContext) -> list[tuple[int, ...]]:
        """Who is visited together; the order of turns is drawn, for the last client has the last word."""
        if not self.one_by_one:
            return [context.clients] if context.clients else []
        clients, draws = sorted(context.clients), generator(context.program.seed, "turns", context.round)
        return [(clients[place],) for place in torch.randperm(len(clients), generator=draws).tolist()]

    def stepped(self, context: RoundContext, server: Server, grads: Params, clients: tuple[int, ...]) -> Server:
        ((part, rule, names),) = server_rules(context.program)
        hyper = {name: server.shared[name] for name in names}
        state = server.optimizer[part] if part in server.optimizer else rule.init(hyper)
        clipped = grads if self.clip_norm is None else clip_by_norm(grads, self.clip_norm)
        hyper, state = moved(hyper, state, clipped, clients, rule, rule.lr(context.round))
        return replace(server, shared=server.shared | hyper, optimizer={part: state})


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
