"""The gating layer of pFedGate: from inputs to a weight and an importance of each block."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """What of the gating layer there is; the paper's ablations leave parts of it out."""

    heads: int = 2
    """Two: one for weights and one for importances; one serves both."""
    pre_norm: bool = True
    post_norm: bool = True
    sigmoid: bool = True


class SwitchNorm(nn.Module):
    """Inputs of several channels, normed by a learnt mix of instance, layer and batch statistics.

    Luo et al., "Differentiable Learning-to-Normalize via Switchable Normalization", 2018. What has no channels, such
    as a row of a table, counts as one channel.
    """

    track_running_stats = True

    def __init__(self, channels: int, *, momentum: float = 0.9) -> None:
        super().__init__()
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.mean_mix = nn.Parameter(torch.ones(3))
        self.variance_mix = nn.Parameter(torch.ones(3))
        self.running_mean: Tensor
        self.running_variance: Tensor
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_variance", torch.zeros(channels))

    def forward(self, inputs: Tensor) -> Tensor:
        """Of shape (examples, channels, places)."""
        instance_mean = inputs.mean(dim=2, keepdim=True)
        instance_variance = inputs.var(dim=2, keepdim=True, unbiased=False)
        square = instance_variance + instance_mean.square()
        layer_mean = instance_mean.mean(dim=1, keepdim=True)
        layer_variance = (square.mean(dim=1, keepdim=True) - layer_mean.square()).clamp_min(0.0)
        batch_mean, batch_variance = self._batch_statistics(instance_mean, square)
        means = (instance_mean, layer_mean, batch_mean)
        variances = (instance_variance, layer_variance, batch_variance)
        mean, variance = mixed(means, self.mean_mix), mixed(variances, self.variance_mix)
        normed = (inputs - mean) / (variance + EPS).sqrt()
        return normed * self.weight[:, None] + self.bias[:, None]

    def _batch_statistics(self, means: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
        if not self.training:
            return self.running_mean[None, :, None], self.running_variance[None, :, None]
        mean = means.mean(dim=0, keepdim=True)
        variance = (squares.mean(dim=0, keepdim=True) - mean.square()).clamp_min(0.0)  # roundings may go below
        with torch.no_grad():
            self.running_mean.lerp_(mean.flatten(), 1 - self.momentum)
            self.running_variance.lerp_(variance.flatten(), 1 - self.momentum)
        return mean, variance


def mixed(values: tuple[Tensor, ...], mix: Tensor) -> Tensor:
    shares = torch.softmax(mix, dim=0)
    return shares[0] * values[0] + shares[1] * values[1] + shares[2] * values[2]


class Head(nn.Module):
    """Linear, batch norm, sigmoid: one number for each block and example."""

    def __init__(self, inputs: int, blocks: int, options: GateOptions) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, blocks)
        self.norm = nn.BatchNorm1d(blocks) if options.post_norm else nn.Identity()
        self.squash = nn.Sigmoid() if options.sigmoid else nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.squash(self.norm(self.linear(inputs)))
        return result


class Gate(nn.Module):
    """From examples to weights M and importances G of all blocks, both (examples, blocks)."""

    def __init__(self, shape: tuple[int, ...], blocks: int, options: GateOptions) -> None:
        super().__init__()
        channels = shape[0] if len(shape) > 1 else 1
        self.norm = SwitchNorm(channels) if options.pre_norm else nn.Identity()
        self.weigh = Head(math.prod(shape), blocks, options)
        self.rank: Head | None = None
        if options.heads == 2:
            self.rank = Head(math.prod(shape), blocks, options)
            self.rank.load_state_dict(self.weigh.state_dict())  # at the start they are copies of each other

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        apart = inputs.flatten(2) if inputs.dim() > 2 else inputs[:, None]
        normed = self.norm(apart).flatten(1)
        weights = self.weigh(normed)
        return weights, weights if self.rank is None else self.rank(normed)
