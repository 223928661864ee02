"""Whole numbers as varints: one at a time and many at once are the same bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plures.core.errors import InvalidMessage
from plures.wire.reader import Reader, encode_number, number_bytes
from plures.wire.varints import decode_numbers, encode_numbers, numbers_bytes

numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1), st.integers(0, 62).map(lambda bits: 1 << bits))


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (2**14, "808001"),
        (2**63 - 1, "ffffffffffffffff7f"),
    ],
)
def test_numbers_are_leb128(number, encoded):
    assert encode_number(number).hex() == encode_numbers(np.array([number])).hex() == encoded


@given(numbers)
def test_a_number_comes_back_and_its_length_is_known(number):
    encoded = encode_number(number)
    assert len(encoded) == number_bytes(number)
    assert Reader(memoryview(encoded)).number() == number


@given(st.lists(numbers, max_size=30))
def test_many_numbers_are_each_number_in_turn(many):
    array = np.array(many, np.int64)
    encoded = encode_numbers(array)
    assert encoded == b"".join(map(encode_number, many))
    assert len(encoded) == numbers_bytes(array)
    assert decode_numbers(memoryview(encoded)).tolist() == many


@pytest.mark.parametrize("encoded", ["80", "8080", "8000", "808000", "ff" * 9 + "01", "ff" * 30 + "01", "ff" * 30])
def test_cut_or_needlessly_long_numbers_are_refused(encoded):
    with pytest.raises(InvalidMessage):
        Reader(memoryview(bytes.fromhex(encoded))).number()
    with pytest.raises(InvalidMessage):
        decode_numbers(memoryview(bytes.fromhex("05" + encoded)))


def test_a_reader_gives_no_more_than_there_is():
    reader = Reader(memoryview(b"abc"))
    assert bytes(reader.take(2)) == b"ab"
    assert reader.left == 1
    with pytest.raises(InvalidMessage, match="2 bytes are needed at byte 2, but only 1 are left"):
        reader.take(2)
