"""Bytes that anybody may have sent: an InvalidMessage, and never anything else."""

import random
import struct

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plures.core.errors import InvalidMessage
from plures.core.seeds import generator
from plures.core.wire import Message, Parcel
from plures.wire import CODES, decode, decoded_bytes, encode
from plures.wire.message import MAGIC
from plures.wire.reader import encode_number
from tests.wire.helpers import body, body_of, finite_messages, messages, record, signed

MOST = 100_000
FLOATS = struct.pack("<2f", 1.0, 2.0)


def small_message():
    held = torch.zeros(40, dtype=torch.bool)
    held[[3, 4, 30]] = True
    values = {"w": held.float(), "b": torch.tensor([0.5, 0.0]), "sparse": torch.eye(1, 90)[0]}
    masks = {"w": held, "b": torch.tensor([1.0, 0.0]), "sparse": torch.ones(90)}
    return Message(Parcel(values, masks), {"mask": torch.arange(30) < 20, "steps": torch.tensor(7)})


def refused(data, most_bytes=MOST):
    with pytest.raises(InvalidMessage) as told:
        decode(data, most_bytes=most_bytes)
    return str(told.value)


@given(st.binary(max_size=200))
@example(b"")
@example(MAGIC)
def test_random_bytes_are_refused(data):
    refused(data)
    refused(MAGIC + data)


@pytest.mark.parametrize("code", CODES)
def test_every_truncation_is_refused(code):
    data = encode(small_message(), code=code, generator=generator(0, "test"))
    for length in range(len(data)):
        refused(data[:length])
    for length in range(len(body_of(data))):
        refused(signed(body_of(data)[:length]))


def test_every_flip_of_a_bit_or_byte_is_refused():
    data = encode(small_message())
    decode(data, most_bytes=MOST)
    for place in range(len(data)):
        for flip in (*(1 << bit for bit in range(8)), 0xFF):
            refused(data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :])


def decoded_or_refused(data):
    """Whatever a signed frame holds, it is a message within its limit, or it is refused."""
    try:
        message = decode(data, most_bytes=MOST)
    except InvalidMessage:
        return None
    assert decoded_bytes(message) <= MOST
    return message


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_any_signed_bytes_are_a_message_or_refused(content):
    decoded_or_refused(signed(content))
    decoded_or_refused(signed(body(content, declared=100, flag=len(content) % 2)))


any_bytes = st.one_of(
    messages().map(encode),
    st.builds(
        lambda message, code: encode(message, code=code, generator=generator(0, "test")),
        finite_messages,
        st.sampled_from(CODES),
    ),
)


@given(any_bytes, st.integers(0, 2**32))
@settings(deadline=None)
def test_mutations_that_are_signed_are_a_message_or_refused(data, seed):
    rng = random.Random(seed)
    content = bytearray(body_of(data))
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(content))
        content[place : place + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 2))
        if not content:
            break
    decoded_or_refused(signed(bytes(content)))


def test_every_signed_flip_of_a_small_message_is_a_message_or_refused():
    whole = body_of(encode(small_message()))
    kept = 0
    for place in range(len(whole)):
        for byte in (0, 1, 2, 3, 9, 127, 128, 255):
            kept += decoded_or_refused(signed(whole[:place] + bytes([byte]) + whole[place + 1 :])) is not None
    assert kept > 0  # another value is a message all the same


def test_the_frames_of_these_tests_are_right_if_nothing_is_wrong():
    arrived = decode(signed(body(record(FLOATS), declared=8)), most_bytes=MOST)
    assert arrived.parcel.values["w"].tolist() == [1.0, 2.0]
    held = record(b"\1", section="held", dtype=torch.bool, positions="bitmap")
    arrived = decode(signed(body(record(FLOATS), held, declared=10, flag=1)), most_bytes=MOST)
    assert arrived.parcel.held["w"].tolist() == [True, False]


bad_records = {
    "section": (record(FLOATS, section=4), "no section 4"),
    "dtype": (record(FLOATS, dtype=10), "no dtype 10"),
    "position code": (record(FLOATS, positions=9), "no position code 9"),
    "value code": (record(FLOATS, code=4), "no value code 4"),
    "name": (record(FLOATS, name=b"\xff\xfe"), "not UTF-8"),
    "surrogate": (record(FLOATS, name=b"\xed\xa0\x80"), "not UTF-8"),
    "name beyond the end": (b"\0" + encode_number(100), "bytes are needed"),
    "long name": (record(FLOATS, name=b"n" * 513), "a name has 513 bytes, more than 512"),
    "endless name": (b"\0" + encode_number(2**40), "a name has"),
    "endless number": (b"\0" + b"\xff" * 50, "too long"),
    "many dimensions": (record(shape=(1,) * 9), "9 dimensions, more than 8"),
    "endless dimensions": (b"\0\1w\0" + encode_number(2**60), "dimensions"),
    "overflowing shape": (record(shape=(2**62, 2**62)), "too large"),
    "overflowing empty shape": (record(shape=(0, 2**62, 2**62)), "too large"),
    "product that wraps to 2": (record(FLOATS, shape=(2**32, 2**32, 2)), "too large"),
    "more than declared": (record(FLOATS + FLOATS, shape=(4,)), "more than the bytes it declares"),
    "less than declared": (record(FLOATS[:4], shape=(1,)), "4 bytes fewer"),
    "too few values": (record(FLOATS[:7]), "bytes are needed"),
    "too many values": (record(FLOATS + b"\0"), "1 bytes are left"),
    "positions without values": (record(b"\3" + FLOATS[:4], positions="bitmap"), "bytes are needed"),
    "values without positions": (record(b"\1" + FLOATS, positions="bitmap"), "bytes are left"),
    "positions beyond": (record(b"\5" + FLOATS, positions="bitmap"), "more than its 2 coordinates"),
    "index beyond": (record(b"\1\2" + FLOATS[:4], positions="indices"), "beyond"),
    "block beyond": (record(b"\1\0" + FLOATS[:4], positions="blocks"), "no end"),
    "integers rounded": (record(b"\0" * 8, dtype=torch.int32, code="float16"), "comes as float16"),
    "exact rounded": (record(b"\0" * 4, section="exact", code="bfloat16"), "comes as bfloat16"),
    "masks rounded": (record(dtype=torch.bool, code="int8"), "comes as int8"),
    "step": (record(struct.pack("<f", -1) + b"\1\1", code="int8"), "no levels"),
    "held of nothing": (record(FLOATS, section="held"), "says of none"),
    "masked of nothing": (record(FLOATS, section="masked"), "says of none"),
}


@pytest.mark.parametrize("wrong", bad_records)
def test_a_wrong_record_is_refused_for_what_is_wrong(wrong):
    encoded, told = bad_records[wrong]
    assert told in refused(signed(body(encoded, declared=8)))


held_alone = record(FLOATS, section="held")
bad_bodies = {
    "twice": (body(record(FLOATS), record(FLOATS), declared=16), "'w' comes twice"),
    "twice exact": (body(*[record(FLOATS, section="exact")] * 2, declared=16), "'w' comes twice"),
    "masked twice": (body(record(FLOATS, section="masked"), record(FLOATS), declared=18, flag=1), "'w' comes twice"),
    "held twice": (body(record(FLOATS), held_alone, held_alone, declared=24, flag=1), "'w' comes twice"),
    "held of a mask": (body(record(FLOATS, section="masked"), held_alone, declared=18, flag=1), "'w' comes twice"),
    "held without values": (body(held_alone, declared=8, flag=1), "no such values"),
    "held in another shape": (
        body(record(FLOATS), record(FLOATS[:4], section="held", shape=(1,)), declared=12, flag=1),
        "no such values of shape",
    ),
    "values without held": (body(record(FLOATS), declared=8, flag=1), "does not say of every value"),
    "masks of masks": (body(record(section="masked", dtype=torch.bool), declared=4, flag=1), "section masked"),
    "flag": (body(record(FLOATS), declared=8, flag=2), "flag 2"),
    "fewer than said": (body(record(FLOATS), declared=8, number=2), "bytes are needed"),
    "more than said": (body(record(FLOATS), declared=8, number=0), "bytes are left"),
    "too many": (body(record(FLOATS), declared=8, number=2**20), "1048576 tensors"),
    "declares too much": (body(record(FLOATS), declared=MOST), "more than most_bytes = 100000"),
    "declares more": (body(record(FLOATS), declared=9), "1 bytes fewer"),
    "empty": (b"", "bytes are needed"),
}


@pytest.mark.parametrize("wrong", bad_bodies)
def test_a_wrong_body_is_refused_for_what_is_wrong(wrong):
    content, told = bad_bodies[wrong]
    assert told in refused(signed(content))


def test_another_version_is_named():
    data = bytearray(encode(small_message()))
    data[len(MAGIC)] = 2
    assert "version 2" in refused(bytes(data))


def test_a_long_name_is_told_in_part():
    wrong = record(FLOATS[:3], name=b"n" * 500, section="exact", code="int8")
    told = refused(signed(body(wrong, declared=8)))
    assert told.count("n") > 280
    assert len(told) < 500
