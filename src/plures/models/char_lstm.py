"""The recurrent network of LEAF for Shakespeare: the next character after each one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from torch import Tensor, nn

from plures.models.shapes import TOKENS, Outputs, axes_of, check_sizes, check_word


class CharLstm(nn.Module):
    """Characters (batch, time) to scores of the next: (batch, vocabulary, time), or (batch, vocabulary) at the end."""

    def __init__(self, classes: int, embedding: int, hidden: int, depth: int, last: bool) -> None:
        super().__init__()
        self.last = last
        self.embedding = nn.Embedding(classes, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=depth, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        features, _ = self.lstm(self.embedding(tokens))
        result: Tensor = self.head(features[:, -1]) if self.last else self.head(features).transpose(1, 2)
        return result


def char_lstm(
    *,
    shape: Sequence[int] = (80,),
    classes: int = 80,
    embedding: int = 8,
    hidden: int = 256,
    depth: int = 2,
    outputs: Outputs = "every",
) -> CharLstm:
    """LEAF's sizes; LEAF itself predicts after the last character only (`outputs="last"`) and has one bias per gate."""
    axes_of("char_lstm", shape, TOKENS)
    check_sizes("char_lstm", classes=classes, embedding=embedding, hidden=hidden, depth=depth)
    check_word("char_lstm", "outputs", outputs, get_args(Outputs))
    return CharLstm(classes, embedding, hidden, depth, outputs == "last")
