"""Whole numbers as varints: one at a time and many at once are the same bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plures.core.errors import InvalidMessage
from plures.wire.reader import Reader, encode_number, number_bytes
from plures.wire.varints import BYTES_AT_ONCE, decode_numbers, encode_numbers, numbers_bytes, numbers_in_turn

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


@pytest.mark.parametrize("most", [1, 7, 14, 62])
def test_a_long_list_is_read_in_pieces_that_end_with_a_number(most):
    """With numbers of 1 to `most` bits, so of up to 9 bytes."""
    rng = np.random.default_rng(most)
    array = rng.integers(0, 1 << rng.integers(1, most + 1, 5 * BYTES_AT_ONCE), dtype=np.int64)
    pieces = list(numbers_in_turn(memoryview(encode_numbers(array))))
    assert np.array_equal(np.concatenate(pieces), array)
    assert len(pieces) > 4
    assert all(numbers_bytes(piece) <= BYTES_AT_ONCE for piece in pieces)


def test_an_empty_list_has_no_pieces():
    assert list(numbers_in_turn(memoryview(b""))) == []


@pytest.mark.parametrize("place", [0, 1, 8, 9, BYTES_AT_ONCE - 9, BYTES_AT_ONCE - 8, BYTES_AT_ONCE, 2 * BYTES_AT_ONCE])
def test_a_number_that_is_too_long_is_found_wherever_it_is(place):
    encoded = bytes(place) + b"\xff" * 9 + bytes(3 * BYTES_AT_ONCE)
    with pytest.raises(InvalidMessage, match="too long"):
        list(numbers_in_turn(memoryview(encoded)))


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
