"""What hostile bytes may take: nothing if they are refused, and no more than was allowed if they are not."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
import torch

from plures.core.errors import InvalidMessage
from plures.core.wire import Message, Parcel
from plures.wire import decode, decoded_bytes, encode
from plures.wire.message import MOST_TENSORS, TENSOR_BYTES
from plures.wire.reader import encode_number
from tests.wire.helpers import body, record, signed

MOST = 100_000
LITTLE = 200_000


def refused(data, most_bytes=MOST):
    with pytest.raises(InvalidMessage) as told:
        decode(data, most_bytes=most_bytes)
    return str(told.value)


def peak_bytes(use):
    tracemalloc.start()
    try:
        use()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


TERABYTES = 1 << 50
bombs = {
    "declared": body(record(shape=(TERABYTES // 4,)), declared=TERABYTES),
    "shape": body(record(shape=(TERABYTES // 4,)), declared=8),
    "sparse": body(record(b"\0", shape=(TERABYTES // 4,), positions="indices"), declared=TERABYTES),
    "mask": body(record(shape=(TERABYTES,), dtype=torch.bool), declared=TERABYTES),
    "small mask": body(record(shape=(TERABYTES,), dtype=torch.bool), declared=8),
    "bitmap": body(record(shape=(50, 50), positions="bitmap"), declared=10_000),
    "indices": body(record(encode_number(2**40), shape=(99,), positions="indices"), declared=400),
    "name": body(b"\0" + encode_number(TERABYTES), declared=8),
    "long name": body(record(name=b"n" * 5_000_000), declared=8),
}


@pytest.mark.parametrize("bomb", bombs)
def test_a_bomb_takes_no_memory(bomb):
    data = signed(bombs[bomb])
    assert peak_bytes(lambda: refused(data)) < LITTLE


def test_a_bomb_within_the_limit_of_a_careless_caller_is_still_only_refused():
    told = refused(signed(bombs["sparse"]), most_bytes=1 << 62)
    assert "not enough memory" in told


# Empty tensors


def empty_tensors(number):
    return signed(body(*[record(name=b"%d" % place, shape=(0,) * 8) for place in range(number)], declared=0))


def test_empty_tensors_are_no_way_around_the_limit():
    """Each takes some 19 bytes of the message and a kilobyte of memory: all are refused before the first is made."""
    data = empty_tensors(MOST_TENSORS)
    for most_bytes in (0, len(data), MOST_TENSORS * TENSOR_BYTES - 1):
        assert peak_bytes(lambda most=most_bytes: refused(data, most_bytes=most)) < LITTLE
    assert "65536 tensors take 536870912 bytes, 8192 for each" in refused(data, most_bytes=0)


def test_each_tensor_is_allowed_for_and_each_byte_of_its_values():
    """Two records, for what was held of w comes with it; 3 floats, 3 truth values, 2 integers of 8 bytes."""
    parcel = Parcel({"w": torch.ones(3)}, {"w": torch.ones(3, dtype=torch.bool)})
    message = Message(parcel, {"steps": torch.arange(2)})
    needed = 2 * TENSOR_BYTES + 12 + 3 + 16
    assert decoded_bytes(message) == needed
    decode(encode(message), most_bytes=needed)
    assert f"take {needed} bytes" in refused(encode(message), most_bytes=needed - 1)


def test_what_is_held_apart_is_one_more_tensor():
    counts = Message(Parcel({"w": torch.ones(3)}, {"w": torch.ones(3)}))
    assert decoded_bytes(counts) == 2 * TENSOR_BYTES + 24
    decode(encode(counts), most_bytes=decoded_bytes(counts))


STATUS = Path("/proc/self/statm")


def resident_bytes():
    return int(STATUS.read_text().split()[1]) * 4096


def wide_name(place):
    """512 bytes that take four times as many in Python, for the sake of one character."""
    return f"\N{GRINNING FACE}{place}".encode().ljust(512, b"n")


one_each = {
    "empty": {"shape": (0,) * 8},
    "whole": {"payload": bytes(8)},
    "bitmap": {"payload": b"\1" + bytes(8), "positions": "bitmap"},
    "int8": {"payload": bytes(5), "code": "int8"},
}


@pytest.mark.skipif(not STATUS.exists(), reason="tells the memory of a process on Linux only")
@pytest.mark.parametrize("kind", one_each)
def test_a_tensor_takes_less_than_is_allowed_for_it(kind):
    """As much as there can be of name, shape and mask; what torch takes, only the operating system knows."""
    options = {"section": "masked", "dtype": torch.float64, "shape": (1,) * 8} | one_each[kind]
    number, values = 4000, 0 if kind == "empty" else 9  # a number of 8 bytes, and whether it is held
    records = [record(name=wide_name(place), **options) for place in range(number)]
    data = signed(body(*records, declared=number * values, flag=1))
    before = resident_bytes()
    message = decode(data, most_bytes=number * (TENSOR_BYTES + values))
    assert len(message.parcel.values) == len(message.parcel.held) == number
    assert resident_bytes() - before < number * TENSOR_BYTES


# Positions


NUMEL = 1 << 22
"""So many truth values take four megabytes; their positions may take an eighth of that in the message."""
LONGEST = NUMEL // 8 - 10
AT_ONCE = 2_000_000
"""More than it takes to read as many positions as are read at once."""
right_lists = {
    "one byte each": bytes(LONGEST),
    "one of two bytes": bytes(LONGEST - 3) + b"\x80\x01",
    "two bytes each": b"\x80\x01" * (NUMEL // 256),
}
wrong_lists = {
    "beyond": b"\x7f" * LONGEST,
    "cut off": bytes(LONGEST - 1) + b"\x80",
    "too long": bytes(LONGEST // 2) + b"\xff" * (LONGEST // 2),
}


def truth_values(gaps, code):
    payload = encode_number(len(gaps)) + gaps
    return signed(body(record(payload, shape=(NUMEL,), dtype=torch.bool, positions=code), declared=NUMEL))


@pytest.mark.parametrize("code", ["indices", "blocks"])
@pytest.mark.parametrize("kind", right_lists)
def test_positions_take_little_beside_the_mask_that_they_tell(code, kind):
    """As integers of 8 bytes, those of one byte would take as much as the mask, and again in every step of decoding."""
    data = truth_values(right_lists[kind], code)
    assert peak_bytes(lambda: decode(data, most_bytes=NUMEL + TENSOR_BYTES)) < NUMEL + AT_ONCE


@pytest.mark.parametrize("code", ["indices", "blocks"])
@pytest.mark.parametrize("kind", wrong_lists)
def test_so_do_positions_that_are_refused(code, kind):
    data = truth_values(wrong_lists[kind], code)
    assert peak_bytes(lambda: refused(data, most_bytes=NUMEL + TENSOR_BYTES)) < NUMEL + AT_ONCE
