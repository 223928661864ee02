"""The wire of a run: what arrives, and what it took."""

import pytest
import torch

from plures.core.errors import InvalidConfig
from plures.core.seeds import generator
from plures.core.wire import Message, Parcel, Sent, Wire, count_values
from plures.wire import CODES, Codec, decode, encode, error_bound, size
from plures.wire.codec import placed_like
from tests.wire.helpers import raw_message


def draws():
    return generator(5, "wire")


def not_asked():
    raise AssertionError("nothing is drawn at random here")


def some_message(dtype=torch.float32):
    held = torch.rand(60, 10, generator=generator(0, "mask")) < 0.5
    values = torch.randn(60, 10, generator=generator(0, "values"), dtype=dtype)
    bias = torch.randn(60, generator=generator(0, "bias"), dtype=dtype)
    parcel = Parcel(
        {"w": torch.where(held, values, 0.0), "b": bias}, {"w": held, "b": torch.ones(60, dtype=torch.bool)}
    )
    return Message(parcel, {"mean": bias * 3, "steps": torch.tensor(4), "mask": held})


def test_a_codec_is_a_wire_and_a_value():
    wire: Wire = Codec(upload="int8")
    assert wire == Codec(upload="int8", download="exact", through_bytes=False) != Codec()
    assert hash(Codec()) == hash(Codec())


@pytest.mark.parametrize("upward", [False, True])
def test_an_exact_message_is_only_measured(upward):
    message = some_message()
    arrived, sent = Codec().carry(message, upward=upward, draws=not_asked)
    assert arrived is message
    assert sent == Sent(len(encode(message)), count_values(message))
    assert sent.num_values == int(message.parcel.held["w"].sum()) + 60 + 60


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_through_bytes_the_same_arrives_and_takes_the_same(dtype):
    message = some_message(dtype)
    arrived, sent = Codec(through_bytes=True).carry(message, upward=True, draws=not_asked)
    assert arrived is not message
    assert raw_message(arrived) == raw_message(message)
    assert sent == Codec().carry(message, upward=True, draws=not_asked)[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("code", ["float16", "bfloat16", "int8"])
def test_a_lossy_code_rounds_values_and_nothing_else(code, dtype):
    message = some_message(dtype)
    arrived, sent = Codec(upload=code).carry(message, upward=True, draws=draws)
    assert raw_message(arrived)[1:] == raw_message(message)[1:]
    for name, value in message.parcel.values.items():
        rounded = arrived.parcel.values[name]
        assert rounded.dtype == dtype
        assert float((rounded - value).abs().max()) > 0
        assert bool(((rounded - value).abs().double() <= error_bound(code, value)).all())
    assert sent == Sent(size(message, code=code), count_values(message))
    assert sent.num_bytes < size(message)


def test_each_direction_has_its_code():
    message, wire = some_message(), Codec(upload="int8", download="bfloat16")
    up, down = (wire.carry(message, upward=upward, draws=draws)[1].num_bytes for upward in (True, False))
    assert (up, down) == (size(message, code="int8"), size(message, code="bfloat16"))


def test_only_int8_draws_and_only_from_what_it_is_given():
    message = some_message()
    for code in set(CODES) - {"int8"}:
        Codec(upload=code, through_bytes=True).carry(message, upward=True, draws=not_asked)
    before = torch.random.get_rng_state()
    arrived, _ = Codec(upload="int8").carry(message, upward=True, draws=draws)
    assert torch.equal(torch.random.get_rng_state(), before)
    expected = decode(encode(message, code="int8", generator=draws()), most_bytes=10**6)
    assert raw_message(arrived) == raw_message(expected)


def test_an_empty_message_has_a_size_too():
    for held in (None, {}):
        message = Message(Parcel({}, held))
        arrived, sent = Codec(upload="int8").carry(message, upward=True, draws=draws)
        assert raw_message(arrived) == raw_message(message)
        assert sent == Sent(size(message), 0)


def test_what_arrives_is_on_the_device_it_came_from():
    sent = some_message()
    parcel = Parcel({"w": sent.parcel.values["w"].to("meta"), "b": sent.parcel.values["b"]}, sent.parcel.held)
    placed = placed_like(sent, Message(parcel, sent.exact | {"mean": sent.exact["mean"].to("meta")}))
    kinds = [value.device.type for value in (*placed.parcel.values.values(), *placed.exact.values())]
    assert kinds == ["meta", "cpu", "meta", "cpu", "cpu"]
    assert {value.device.type for value in placed.parcel.held.values()} == {"cpu"}


@pytest.mark.parametrize("direction", ["upload", "download"])
@pytest.mark.parametrize(
    ("code", "hint"), [("int9", "Did you mean 'int8'"), ("float 16", "'float16'"), (None, "Known")]
)
def test_an_unknown_code_is_refused_at_once(direction, code, hint):
    with pytest.raises(InvalidConfig, match=f"wire.{direction} is .*{hint}"):
        Codec(**{direction: code})
