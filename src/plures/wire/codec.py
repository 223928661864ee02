"""The wire that counts every byte: it measures messages, or really encodes and decodes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from plures.core.types import Params
from plures.core.wire import Message, Parcel, Sent, count_values
from plures.wire.message import decode, decoded_bytes, encode, size
from plures.wire.values import Code, check_code


@dataclass(frozen=True, kw_only=True)
class Codec:
    """What arrives is what was sent, but for what the code of that direction rounds."""

    upload: Code = "exact"
    download: Code = "exact"
    through_bytes: bool = False
    """Also encode and decode what is sent exactly; the numbers are the same without."""
    keeps: bool = False
    """Keep the bytes, for whoever really sends them."""

    def __post_init__(self) -> None:
        check_code("wire.upload", self.upload)
        check_code("wire.download", self.download)

    def carry(self, message: Message, *, upward: bool, draws: Callable[[], torch.Generator]) -> tuple[Message, Sent]:
        """The message as it arrives, and what it took; `draws` is asked only by a code that rounds at random."""
        code = self.upload if upward else self.download
        if code == "exact" and not self.through_bytes and not self.keeps:
            return message, Sent(size(message), count_values(message))
        data = encode(message, code=code, generator=draws() if code == "int8" else None)
        sent = Sent(len(data), count_values(message), data if self.keeps else b"")
        if code == "exact" and not self.through_bytes:
            return message, sent
        return placed_like(decode(data, most_bytes=decoded_bytes(message)), message), sent


def placed_like(arrived: Message, sent: Message) -> Message:
    """Each tensor on the device it was sent from."""
    (values, held), (sent_values, sent_held) = arrived.parcel, sent.parcel
    masks = None if held is None or sent_held is None else on_devices(held, sent_held)
    return Message(Parcel(on_devices(values, sent_values), masks), on_devices(arrived.exact, sent.exact))


def on_devices(params: Params, originals: Params) -> Params:
    return {name: value.to(originals[name].device) for name, value in params.items()}
