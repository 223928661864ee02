"""How much may be sent: what is just within a limit arrives, and what is beyond is refused by the sender."""

from __future__ import annotations

import pytest
import torch

from plures.core.errors import InvalidMessage
from plures.core.wire import Message, Parcel
from plures.wire import decode, encode, size
from tests.wire.helpers import raw_message

ENOUGH = 100_000


def of(**values):
    return Message(Parcel(values))


def test_a_name_may_have_512_bytes_and_no_more():
    """An umlaut has two."""
    message = of(**{"ö" * 256: torch.ones(2)})
    assert raw_message(decode(encode(message), most_bytes=ENOUGH)) == raw_message(message)
    for use in (encode, size):
        with pytest.raises(InvalidMessage, match=r"'ö{40}'\.\.\. has 513 bytes, more than 512\. Rename"):
            use(of(**{"ö" * 256 + "o": torch.ones(2)}))


def test_a_tensor_may_have_8_dimensions():
    message = of(w=torch.arange(6.0).reshape(1, 2, 1, 1, 3, 1, 1, 1))
    assert raw_message(decode(encode(message), most_bytes=ENOUGH)) == raw_message(message)


def test_too_many_tensors_are_refused():
    with pytest.raises(InvalidMessage, match="70000 tensors"):
        size(Message(Parcel(dict.fromkeys(map(str, range(70_000)), torch.ones(())))))
