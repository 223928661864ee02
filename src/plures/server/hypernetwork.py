"""A hypernetwork at the server: it makes each client's model of the client's embedding.

It is in the shared part under names of its own, and none of it is ever sent. Its body is a perceptron with ReLU between
its layers; from the features that this gives, one linear layer makes each parameter of the clients' network. A client's
embedding is in the client's own state, where the server finds it: clients that were never visited take no memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.method import Optimizer
from plures.core.networks import Network
from plures.core.rates import check_count
from plures.core.types import KNOWN, SHARED, Params, Part
from plures.core.visit import Beginning
from plures.core.wire import Parcel

__all__ = ["EMBEDDING", "HYPER", "MEAN", "Hypernetwork", "generated", "own_model"]

HYPER: Part = "shared.hyper"
HYPER_MEAN: Part = "shared.hyper.mean"
"""Apart from the hypernetwork, for no optimiser moves it."""
PREFIX = "hyper."
BODY = PREFIX + "body."
HEADS = PREFIX + "heads."
EMBEDDING = PREFIX + "embedding"
MEAN = PREFIX + "mean"


@dataclass(frozen=True, kw_only=True)
class Hypernetwork:
    """What a hypernetwork is like before it has learnt anything: a method's `extend`, and by `begin` its `start`."""

    rule: Optimizer
    """The server's, which moves embeddings too: what it remembers of one is kept beside it."""
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
        size = self.embedding or default_size(network)
        nothing, hyper = torch.zeros(size).to(next(iter(targets.values()))), self.first_values(targets, size)
        made = generated(targets | hyper, nothing)
        return {HYPER: hyper, HYPER_MEAN: {MEAN: nothing.clone()}, SHARED: made, KNOWN: self.kept(nothing)}

    def first_values(self, targets: Params, size: int) -> Params:
        """As torch draws linear layers; in double precision, to be the same for every network."""
        like, values = next(iter(targets.values())), dict[str, Tensor]()
        for number in range(self.layers + 1):
            values |= drawn_layer(f"{BODY}{number}", self.hidden if number else size, self.hidden, like)
        for name, target in targets.items():
            values |= drawn_layer(HEADS + name, self.hidden, target.numel(), like)
        return values

    def begin(self, beginning: Beginning) -> Params:
        """A client's state before its first visit: only now its embedding is drawn, as torch draws embeddings."""
        like = beginning.state[EMBEDDING]
        drawn = torch.randn(like.shape, generator=beginning.own_draws(), dtype=torch.float64)
        return beginning.state | self.kept(drawn.to(like))

    def kept(self, embedding: Tensor) -> Params:
        """An embedding as it is in a client's state."""
        memory = self.rule.init({EMBEDDING: embedding})
        own = {memory_name(group): values[EMBEDDING] for group, values in memory.items() if EMBEDDING in values}
        return {EMBEDDING: embedding} | own


def memory_name(group: str) -> str:
    """In a client's state: what a group of the server optimiser's state has of the embedding."""
    return f"{EMBEDDING}.{group}"


def default_size(network: Network) -> int:
    if network.num_clients is None:
        raise InvalidConfig(
            "A hypernetwork needs the number of clients: give Program(..., num_clients=...), or the size `embedding`."
        )
    return int(1 + network.num_clients / 4)


def check_network(network: Network, targets: Params) -> None:
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


def own_model(shared: Params, known: Params) -> Parcel:
    """The download: what the hypernetwork makes of the client's embedding, and shared running statistics."""
    others = {name: value for name, value in shared.items() if not name.startswith(PREFIX)}
    return Parcel(others | generated(shared, known[EMBEDDING]))


# And back


def pulled_back(shared: Params, embedding: Tensor, upload: Params) -> Params:
    """The upload as a gradient of a client's model, carried on to the hypernetwork and the client's embedding."""
    hyper = {name: value for name, value in shared.items() if name.startswith((BODY, HEADS))}
    return pulled_to(hyper | {EMBEDDING: embedding}, shared, upload)


def pulled_to_embedding(shared: Params, embedding: Tensor, upload: Params) -> Tensor:
    """The upload as a gradient by the embedding alone, the hypernetwork held still."""
    return pulled_to({EMBEDDING: embedding}, shared, upload)[EMBEDDING]


def pulled_to(point: Params, shared: Params, upload: Params) -> Params:
    """The upload as a gradient of what is made at that point, by all that the point names; an embedding is among it."""
    leaves = {name: value.detach().requires_grad_() for name, value in point.items()}
    model = generated(shared | leaves, leaves[EMBEDDING])
    grads = torch.autograd.grad(list(model.values()), list(leaves.values()), [upload[name] for name in model])
    return dict(zip(leaves, grads, strict=True))
