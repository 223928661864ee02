"""What travels between a client and the server, and who carries it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from plures.core.types import Params, sum_bytes


class Parcel(NamedTuple):
    """Values that travel, and how much was held of each coordinate (None: all of it)."""

    values: Params
    held: Params | None = None
    """Per coordinate; where it is False or 0 the value is 0 and need not be sent."""


class Message(NamedTuple):
    """All that one side sends to the other in one direction of one visit."""

    parcel: Parcel
    exact: Params = {}  # noqa: RUF012
    """What no code may round: running statistics, masks."""


class Sent(NamedTuple):
    """What a message took on the way."""

    num_bytes: int
    """As encoded, with names, shapes, masks and indices."""
    num_values: int
    """Values alone, as papers count them: masks and indices are free."""
    data: bytes = b""
    """The message as it is sent, of a wire that keeps it for whoever really sends."""


NOTHING_SENT = Sent(0, 0)


class Wire(Protocol):
    """Carries messages: what arrives is what was sent, but for what a lossy code has rounded."""

    def carry(
        self, message: Message, *, upward: bool, draws: Callable[[], torch.Generator]
    ) -> tuple[Message, Sent]: ...


def send(wire: Wire, message: Message, *, upward: bool, draws: Callable[[], torch.Generator]) -> tuple[Message, Sent]:
    """Carry a message; one with nothing in it is not sent."""
    if not message.parcel.values and not message.exact:
        return message, NOTHING_SENT
    return wire.carry(message, upward=upward, draws=draws)


class Uncoded:
    """Carries messages as they are, and counts the bytes of all values; for want of a real wire."""

    def carry(self, message: Message, *, upward: bool, draws: Callable[[], torch.Generator]) -> tuple[Message, Sent]:
        values, held = message.parcel
        num_bytes = sum_bytes(values.values()) + sum_bytes((held or {}).values()) + sum_bytes(message.exact.values())
        return message, Sent(num_bytes, count_values(message))


def count_values(message: Message) -> int:
    """Real numbers that are meant to arrive: held coordinates, or all; truth values and counters are none."""
    values, held = message.parcel
    sizes = [
        value.numel() if held is None else int(torch.count_nonzero(held[name]))
        for name, value in values.items()
        if value.is_floating_point()
    ]
    return sum(sizes) + sum(value.numel() for value in message.exact.values() if value.is_floating_point())
