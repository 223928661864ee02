"""The server's wire: one encoding for many clients, and the same bytes as a codec's own."""

from __future__ import annotations

import pytest
import torch

from plures.core.wire import Message, Parcel
from plures.deploy.posting import Posting
from plures.wire import Codec, decode
from plures.wire import codec as codec_module


def draws() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_same_tensors_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    encode = codec_module.encode
    monkeypatch.setattr(codec_module, "encode", lambda *given, **more: calls.append(given) or encode(*given, **more))
    shared, wire = {"a": torch.randn(3, 2)}, Posting()
    sent = [wire.carry(Message(Parcel(dict(shared))), upward=False, draws=draws)[1] for _ in range(4)]
    assert len(calls) == 1
    assert len({one.data for one in sent}) == 1
    other = wire.carry(Message(Parcel({"a": shared["a"].clone() + 1})), upward=False, draws=draws)[1]
    assert len(calls) == 2
    assert other.data != sent[0].data


@pytest.mark.parametrize("code", ["exact", "float16", "bfloat16", "int8"])
def test_the_bytes_are_those_of_the_codec(code: str) -> None:
    message = Message(Parcel({"a": torch.randn(5, 4)}, {"a": torch.rand(5, 4) > 0.5}), {"m": torch.ones(2)})
    message.parcel.values["a"].mul_(message.parcel.held["a"])  # type: ignore[index]
    plain = Codec(download=code, upload=code, through_bytes=True)  # type: ignore[arg-type]
    posting = Posting(download=code, upload=code)  # type: ignore[arg-type]
    for upward in (True, False):
        wanted, _ = plain.carry(message, upward=upward, draws=draws)
        found, sent = posting.carry(message, upward=upward, draws=draws)
        assert torch.equal(found.parcel.values["a"], wanted.parcel.values["a"])
        assert torch.equal(decode(sent.data, most_bytes=10**6).parcel.values["a"], wanted.parcel.values["a"])


def test_what_is_rounded_at_random_is_another_message_for_each_client() -> None:
    message, wire = Message(Parcel({"a": torch.randn(50)})), Posting(download="int8")
    one = wire.carry(message, upward=False, draws=lambda: torch.Generator().manual_seed(1))[1]
    other = wire.carry(message, upward=False, draws=lambda: torch.Generator().manual_seed(2))[1]
    assert one.data != other.data
