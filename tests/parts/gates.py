"""Networks under given gates, and what these come to in plain torch, piece by piece and example by example."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from plures.parts.gated import GatedNetwork, GatedOptions
from tests.parts.networks import Attention, seeded

LEAST = 0.2


class GivenGates(nn.Module):
    """Says the same weights and importances whatever it sees: a row for each example, or one row for all."""

    def __init__(self, weights, importance):
        super().__init__()
        self.weights = nn.Parameter(torch.as_tensor(weights, dtype=torch.float64))
        self.importance = nn.Parameter(torch.as_tensor(importance, dtype=torch.float64))

    def forward(self, inputs):
        return self.weights.expand(len(inputs), -1), self.importance.expand(len(inputs), -1)


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.second.weight = self.first.weight

    def forward(self, inputs):
        return self.second(torch.tanh(self.first(inputs)))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.GroupNorm(2, 6),
        nn.Tanh(),
        nn.AvgPool2d(2),  # a maximum of equal values would have no one gradient
        nn.Conv2d(6, 5, 2, bias=False, stride=2),
        nn.Flatten(),
        nn.Linear(5, 3),
    )


NETWORKS = {
    "linear": (lambda: nn.Linear(5, 7), (5,)),
    "two layers": (lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), (5,)),
    "no bias": (lambda: nn.Sequential(nn.Linear(5, 7, bias=False), nn.Tanh(), nn.Linear(7, 3, bias=False)), (5,)),
    "one unit": (lambda: nn.Sequential(nn.Linear(5, 1), nn.Tanh(), nn.Linear(1, 2)), (5,)),
    "series of rows": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)), (3, 4)),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(2, 5, 3, stride=2), nn.Tanh(), nn.Conv1d(5, 6, 2, dilation=2)), (2, 9)),
    "conv2d": (convolutions, (2, 4, 4)),
    "circular": (lambda: nn.Conv2d(1, 3, 3, padding=1, padding_mode="circular"), (1, 4, 4)),
    "tied": (Tied, (5,)),
    "attention": (lambda: Attention(6), (4, 6)),
}
"""Networks that only call their layers, each with the shape of an example."""


def plain(name):
    make, _ = NETWORKS[name]
    return seeded(make).double()


def examples(name, count=4, seed=5):
    return random((count, *NETWORKS[name][1]), seed, low=-1.0)


def random(shape, seed, low=0.05, high=0.95):
    draws = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(shape, generator=draws, dtype=torch.float64)


def gated(network, inputs, *, weights=None, importance=None, capacity=0.5, rows=1, **options):
    """A gated network whose gate says what is given, or else random numbers in so many rows."""
    made = GatedNetwork(network, inputs[:1], GatedOptions(**{"least": LEAST} | options))
    made.capacity.fill_(capacity)
    count = made.blocks.count
    weights = random((rows, count), 1) if weights is None else weights
    made.gate = GivenGates(weights, random((rows, count), 2) if importance is None else importance)
    return made


def scaled(network, blocks, gates):
    """The network's gated parameters, each entry times the gate of its block."""
    found = {}
    for name, value in network.named_parameters():
        factors = [gates[piece.block].expand(piece.stop - piece.start) for piece in blocks.pieces if piece.name == name]
        if factors:
            found[name] = value * torch.cat(factors).reshape(value.shape)
    return found


def one_by_one(network, blocks, gates, inputs):
    """Each example alone through a network of its own; one row of gates serves them all."""
    rows = gates.expand(len(inputs), -1)
    return torch.cat(
        [
            functional_call(network, scaled(network, blocks, rows[n]), (inputs[n : n + 1],), tie_weights=True)
            for n in range(len(inputs))
        ]
    )


def effective(weights, importance, kept, options):
    """M' = M * I, with the gradient of I straight to G; the authors clip G, and nothing goes to dropped blocks."""
    if options.dropped_learn:
        return weights * (kept + (importance - importance.detach()))
    clipped = importance.clamp(min=options.least)
    return weights * kept * (1 + (clipped - clipped.detach()))


def gradients(output: Tensor, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of a sum of all outputs with different weights."""
    loss = (output * random(output.shape, 9, low=-1.0)).sum()
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def assert_same_function(made, network, inputs, kept):
    """The gated network is the plain one with gates times weights: in value and in every gradient."""
    inputs = inputs.requires_grad_()
    output = made(inputs)
    gates = {"weights": made.gate.weights, "importance": made.gate.importance}
    found = gradients(output, gates | dict(made.network.named_parameters()) | {"inputs": inputs})
    factors = effective(*gates.values(), kept.double(), made.options)
    wanted_output = one_by_one(network, made.blocks, factors, inputs)
    wanted = gradients(wanted_output, gates | dict(network.named_parameters()) | {"inputs": inputs})
    torch.testing.assert_close(output, wanted_output, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)
