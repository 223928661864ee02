"""A causal transformer over tokens, as in the FedAlt paper, and a small one over characters."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.models.init import small_normal
from plures.models.shapes import TOKENS, Outputs, axes_of, check_rate, check_sizes, check_word

INITIAL_STD = 0.02
"""Embeddings of variance 1 would, as the tied output layer, give scores of a standard deviation of sqrt(width)."""


class Attention(nn.Module):
    """Self-attention in several heads, without biases: each place sees itself and what came before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, inputs: Tensor) -> Tensor:
        query, key, value = (self.split(layer(inputs)) for layer in (self.query, self.key, self.value))
        scores = query @ key.transpose(-2, -1) / sqrt(query.shape[-1])
        length = inputs.shape[-2]
        later = torch.ones(length, length, dtype=torch.bool, device=inputs.device).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ value
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result

    def split(self, inputs: Tensor) -> Tensor:
        """(batch, time, width) -> (batch, heads, time, width / heads)"""
        batch, length, width = inputs.shape
        return inputs.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)


class Block(nn.Module):
    """Attention, then two linear layers, each with a residual sum and after it a norm (post-LN)."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm1 = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.norm2 = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, inputs: Tensor) -> Tensor:
        inner = self.norm1(inputs + self.drop(self.attention(inputs)))
        result: Tensor = self.norm2(inner + self.drop(self.feed_forward(inner)))
        return result


class TiedHead(nn.Module):
    """A linear layer that borrows its weight and owns its bias: the weight has one name and is sent once."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, features: Tensor, weight: Tensor) -> Tensor:
        return F.linear(features, weight, self.bias)


class Transformer(nn.Module):
    """Tokens (batch, time) to scores of the next token, (batch, vocabulary, time) or (batch, vocabulary)."""

    def __init__(
        self, length: int, classes: int, width: int, blocks: Sequence[Block], dropout: float, tied: bool, last: bool
    ) -> None:
        super().__init__()
        self.scale, self.last = sqrt(width), last
        self.embedding = nn.Embedding(classes, width)
        self.positions = nn.Embedding(length, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*blocks)
        self.head = TiedHead(classes) if tied else nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        length, most = tokens.shape[-1], self.positions.num_embeddings
        if length > most:
            raise InvalidModel(f"The transformer was made for sequences of at most {most} tokens, not {length}.")
        features = self.embedding(tokens) * self.scale + self.positions.weight[:length]
        features = self.blocks(self.drop(features))
        if self.last:
            return self.scores(features[:, -1])
        return self.scores(features).transpose(1, 2)

    def scores(self, features: Tensor) -> Tensor:
        more = (self.embedding.weight,) if isinstance(self.head, TiedHead) else ()
        result: Tensor = self.head(features, *more)
        return result


def transformer(
    *,
    shape: Sequence[int] = (20,),
    classes: int = 10_004,
    width: int = 256,
    depth: int = 4,
    heads: int = 4,
    hidden: int = 1024,
    dropout: float = 0.0,
    tied: bool = True,
    outputs: Outputs = "every",
) -> Transformer:
    """The network of the FedAlt paper for StackOverflow; `classes` is the vocabulary, special tokens included."""
    return build("transformer", shape, classes, width, depth, heads, hidden, dropout, tied, outputs)


def char_transformer(
    *,
    shape: Sequence[int] = (80,),
    classes: int = 80,
    width: int = 64,
    depth: int = 2,
    heads: int = 4,
    hidden: int = 256,
    dropout: float = 0.0,
    tied: bool = False,
    outputs: Outputs = "every",
) -> Transformer:
    """The same blocks, small, over characters; its head has a weight of its own, so that it can be personal."""
    return build("char_transformer", shape, classes, width, depth, heads, hidden, dropout, tied, outputs)


def build(
    name: str,
    shape: Sequence[int],
    classes: int,
    width: int,
    depth: int,
    heads: int,
    hidden: int,
    dropout: float,
    tied: bool,
    outputs: Outputs,
) -> Transformer:
    (length,) = axes_of(name, shape, TOKENS)
    check_sizes(name, classes=classes, width=width, depth=depth, heads=heads, hidden=hidden)
    check_rate(name, dropout)
    check_word(name, "outputs", outputs, get_args(Outputs))
    if width % heads:
        raise InvalidModel(f"{name} needs a width that its heads divide, not {width} for {heads} heads.")
    blocks = [Block(width, heads, hidden, dropout) for _ in range(depth)]
    model = Transformer(length, classes, width, blocks, dropout, tied, outputs == "last")
    small_normal(model, INITIAL_STD)
    return model
