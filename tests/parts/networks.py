"""Small networks with what adapters and roles look for: residual blocks with a shortcut, transformer blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.types import Batch
from plures.parts import bottleneck_adapters, conv_adapters, lora
from tests.core.helpers import Clients


class Block(nn.Module):
    """Two convolutions, and a shortcut where the width changes."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(2, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(2, outputs)
        same = inputs == outputs
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1), nn.GroupNorm(2, outputs))
        )

    def forward(self, inputs: Tensor) -> Tensor:
        inner = F.relu(self.norm1(self.conv1(inputs)))
        return F.relu(self.norm2(self.conv2(inner)) + self.shortcut(inputs))


class Residual(nn.Module):
    """A stem, a block of width 4, a block of width 8, and a head for three classes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.blocks = nn.ModuleList([Block(4, 4), Block(4, 8)])
        self.head = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = F.relu(self.norm(self.stem(inputs)))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.mean(dim=(2, 3)))


class Attention(nn.Module):
    """One head, four projections."""

    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, inputs: Tensor) -> Tensor:
        scores = self.query(inputs) @ self.key(inputs).transpose(1, 2)
        return self.out(scores.softmax(dim=-1) @ self.value(inputs))


class TransformerBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = Attention(width)
        self.norm1 = nn.LayerNorm(width)
        self.ffn = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm2 = nn.LayerNorm(width)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm1(inputs + self.attention(inputs))
        return self.norm2(hidden + self.ffn(hidden))


class Words(nn.Module):
    """Three blocks over words, and one class for a text."""

    def __init__(self, width=6):
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        self.blocks = nn.ModuleList(TransformerBlock(width) for _ in range(3))
        self.head = nn.Linear(width, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.embedding(inputs)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.mean(dim=1))


def seeded(make, *args, seed=0, **options):
    """What a function makes with torch's global generator at a seed; the generator is as it was afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(*args, **options)


def residual():
    return seeded(Residual).double()


def words():
    return seeded(Words).double()


PLAIN = {"conv": residual, "bottleneck": words, "lora": words}
INSERT = {
    "conv": conv_adapters,
    "bottleneck": lambda module, **options: bottleneck_adapters(module, hidden=2, **options),
    "lora": lambda module, **options: lora(module, on=["blocks.*", "head"], rank=2, **options),
}
"""The three kinds of adapters, each on a network that suits it."""


def adapted(kind, seed=1, **options):
    return seeded(INSERT[kind], PLAIN[kind](), seed=seed, **options)


def examples(kind, num_examples=6, seed=2):
    """Pictures of 5 x 5 or texts of 4 words, in three classes."""
    draws = torch.Generator().manual_seed(seed)
    targets = torch.arange(num_examples) % 3
    if kind == "conv":
        return Batch(torch.randn(num_examples, 1, 5, 5, generator=draws, dtype=torch.float64), targets)
    return Batch(torch.randint(11, (num_examples, 4), generator=draws), targets)


def clients(kind, num_clients=3):
    return Clients(batches=tuple(examples(kind, seed=10 + client) for client in range(num_clients)))


def count(module, names):
    """How many values the named parameters have."""
    parameters = dict(module.named_parameters())
    return sum(parameters[name].numel() for name in names)


def weights(module):
    return {name: value.detach() for name, value in module.named_parameters()}
