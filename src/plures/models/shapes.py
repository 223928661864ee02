"""What a network needs of its sizes and of the shape of one example, checked before it is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from math import prod
from typing import Literal

from plures.core.errors import InvalidModel, did_you_mean

PICTURE = ("channels", "height", "width")
SERIES = ("channels", "time")
TOKENS = ("time",)

Outputs = Literal["every", "last"]
"""Scores of the next token at every place, (batch, vocabulary, time), or at the last one, (batch, vocabulary)."""


def axes_of(name: str, shape: Sequence[int], axes: Sequence[str]) -> tuple[int, ...]:
    """The sizes of one example, once it is sure that it has one for each axis."""
    if len(shape) != len(axes) or min(shape) < 1:
        wanted = ", ".join(axes)
        raise InvalidModel(f"{name} takes examples of shape ({wanted}), each at least 1, not {tuple(shape)}.")
    return tuple(shape)


def with_channels(shape: Sequence[int], channels: int | None) -> Sequence[int]:
    """A shape with another number of channels, which is its first axis."""
    return shape if channels is None else (channels, *shape[1:])


def check_sizes(name: str, **sizes: int | Sequence[int]) -> None:
    """Refuse every size below 1."""
    wrong = [
        f"{name} needs {option} of at least 1, not {size}."
        for option, size in sizes.items()
        if min([size] if isinstance(size, int) else size, default=1) < 1
    ]
    if wrong:
        raise InvalidModel(wrong)


def check_word(name: str, option: str, word: str, known: Sequence[str]) -> None:
    """Refuse a word that is not among those known."""
    if word not in known:
        raise InvalidModel(f"{name} has no {option} '{word}'. {did_you_mean(word, known)}")


def check_rate(name: str, dropout: float) -> None:
    if not 0 <= dropout < 1:
        raise InvalidModel(f"{name} needs a dropout of at least 0 and below 1, not {dropout}.")


def places_left(name: str, sides: Sequence[int], after: Callable[[int], int]) -> int:
    """How many places remain when each side has shrunk from `side` to `after(side)`."""
    left = [after(side) for side in sides]
    if min(left) < 1:
        least = next(side for side in count(1) if after(side) >= 1)
        given = " x ".join(str(side) for side in sides)
        raise InvalidModel(f"{name} needs examples of at least {least} along every side, not {given}: nothing is left.")
    return prod(left)


def valid_halvings(side: int, kernel: int, stages: int) -> int:
    """What is left of a side after so many convolutions without padding, each followed by a halving."""
    for _ in range(stages):
        side = (side - kernel + 1) // 2
    return side
