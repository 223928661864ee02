"""Messages that anybody may have sent, beyond tests/wire/test_hostile.py: spliced, structured and measured."""

from __future__ import annotations

import tracemalloc

import torch
from hypothesis import given
from hypothesis import strategies as st

from plures.core.errors import InvalidMessage
from plures.core.seeds import generator
from plures.core.wire import Message
from plures.wire import CODES, POSITION_CODES, decode, decoded_bytes, encode
from plures.wire.bits import DTYPES
from plures.wire.reader import encode_number
from plures.wire.records import SECTIONS
from tests.fuzz.harness import fuzzed, mutated_bytes, refused
from tests.wire.helpers import body, body_of, finite_messages, messages, raw_message, record, signed

MOST = 100_000
AT_ONCE = 2_000_000
"""More than it takes to read as many positions as are read at once, and for what is refused."""

encoded = st.one_of(
    messages().map(encode),
    st.builds(
        lambda message, code: encode(message, code=code, generator=generator(0, "fuzz")),
        finite_messages,
        st.sampled_from(CODES),
    ),
)


def arrived(fuzzer: str, data: bytes, most_bytes: int = MOST) -> Message | None:
    """A message within its limit, made in little memory, which could be sent again; or an InvalidMessage."""
    found: list[Message] = []
    tracemalloc.start()
    try:
        error = refused(fuzzer, lambda: found.append(decode(data, most_bytes=most_bytes)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * most_bytes + AT_ONCE
    if error is not None:
        assert isinstance(error, InvalidMessage)
        return None
    assert decoded_bytes(found[0]) <= most_bytes
    again = decode(encode(found[0]), most_bytes=most_bytes)
    assert raw_message(again) == raw_message(found[0])
    return found[0]


@given(data=encoded, change=st.data())
@fuzzed(40)
def test_other_bytes_under_the_old_checksum_are_refused(data, change):
    changed = change.draw(mutated_bytes(data))
    found = arrived("wire: other bytes, checksum kept", changed)
    assert found is None or changed == data


@given(data=encoded, change=st.data())
@fuzzed(40)
def test_other_bytes_under_a_new_checksum_are_a_message_or_refused(data, change):
    arrived("wire: other bytes, checksum made anew", signed(change.draw(mutated_bytes(body_of(data)))))


@given(one=encoded, other=encoded, cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)))
@fuzzed(25)
def test_the_head_of_one_message_on_the_tail_of_another_is_a_message_or_refused(one, other, cuts):
    head, tail = body_of(one), body_of(other)
    arrived("wire: two messages spliced", signed(head[: int(cuts[0] * len(head))] + tail[int(cuts[1] * len(tail)) :]))


sizes = st.one_of(st.integers(0, 9), st.sampled_from([127, 128, 2**14, 2**31, 2**32, 2**62, 2**63, 2**64 - 1]))
payloads = st.one_of(st.binary(max_size=60), st.lists(sizes.map(encode_number), max_size=8).map(b"".join))
records = st.builds(
    record,
    payload=payloads,
    section=st.sampled_from(SECTIONS) | st.integers(0, 255),
    name=st.sampled_from([b"w", b"b", b""]) | st.binary(max_size=6),
    dtype=st.sampled_from(DTYPES) | st.integers(0, 255),
    shape=st.lists(sizes, max_size=4).map(tuple),
    positions=st.sampled_from(POSITION_CODES) | st.integers(0, 255),
    code=st.sampled_from(CODES) | st.integers(0, 255),
)


@given(
    parts=st.lists(records, max_size=5),
    declared=st.integers(0, 200) | sizes,
    flag=st.integers(0, 2),
    number=st.none() | sizes,
    most_bytes=st.sampled_from([0, 8192, MOST]),
)
@fuzzed(120)
def test_records_of_any_kind_are_a_message_or_refused(parts, declared, flag, number, most_bytes):
    content = signed(body(*parts, declared=declared, flag=flag, number=number))
    arrived("wire: records of any kind", content, most_bytes)


def fitting(values: int, dtype: torch.dtype) -> bytes:
    """A tensor of so many values, with as many bytes as they take."""
    return record(bytes(values * dtype.itemsize), dtype=dtype, shape=(values,))


@given(values=st.integers(0, 40), dtype=st.sampled_from(DTYPES), change=st.data())
@fuzzed(60)
def test_records_that_nearly_fit_are_a_message_or_refused(values, dtype, change):
    content = body(fitting(values, dtype), declared=values * dtype.itemsize)
    if dtype != torch.bool:
        assert arrived("wire: records that nearly fit", signed(content)) is not None
    arrived("wire: records that nearly fit", signed(change.draw(mutated_bytes(content))))
