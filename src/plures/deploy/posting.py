"""The server's wire: what goes down is kept as bytes, and made once where many clients are sent the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from plures.core.types import Params
from plures.core.wire import Message, Sent
from plures.wire import Codec

Carried = tuple[Message, Sent]


@dataclass(frozen=True, kw_only=True)
class Posting(Codec):
    """A codec that remembers the last download."""

    keeps: bool = True
    _last: list[tuple[Message, Carried]] = field(default_factory=list, compare=False, repr=False)

    def carry(self, message: Message, *, upward: bool, draws: Callable[[], torch.Generator]) -> Carried:
        """As a codec does; what is rounded at random is another message for each client."""
        if upward or self.download == "int8":
            return super().carry(message, upward=upward, draws=draws)
        if not self._last or not is_same(self._last[0][0], message):
            self._last[:] = [(message, super().carry(message, upward=upward, draws=draws))]
        return self._last[0][1]


def is_same(one: Message, other: Message) -> bool:
    """Of the very same tensors; the message that is kept holds on to them."""
    pairs = ((one.parcel.values, other.parcel.values), (one.parcel.held, other.parcel.held), (one.exact, other.exact))
    return all(are_same(mine, theirs) for mine, theirs in pairs)


def are_same(mine: Params | None, theirs: Params | None) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    return list(mine) == list(theirs) and all(value is theirs[name] for name, value in mine.items())
