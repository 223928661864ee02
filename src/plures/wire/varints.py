"""Many whole numbers at once as LEB128 varints, without a loop over the numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from plures.wire.reader import MOST_VARINT_BYTES, broken

BYTES_AT_ONCE = 1 << 14
"""Of a long list of numbers: what it takes to decode them is several times as much as they are."""

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def numbers_bytes(numbers: Numbers) -> int:
    """How many bytes `encode_numbers` takes."""
    if not numbers.size:
        return 0
    longest = max(1, -(-int(numbers.max()).bit_length() // 7))
    more = sum(int(np.count_nonzero(numbers >= 1 << 7 * position)) for position in range(1, longest))
    return numbers.size + more


def encode_numbers(numbers: Numbers) -> bytes:
    """One varint after another; none of the numbers is negative."""
    lengths = varint_lengths(numbers)
    ends = np.cumsum(lengths)
    encoded: Bytes = np.zeros(int(ends[-1]) if ends.size else 0, np.uint8)
    starts = ends - lengths
    for position in range(int(lengths.max(initial=0))):
        longer = lengths > position
        septets = numbers[longer] >> 7 * position & 0x7F
        encoded[starts[longer] + position] = septets | (lengths[longer] > position + 1) * 0x80
    return encoded.tobytes()


def varint_lengths(numbers: Numbers) -> Numbers:
    lengths = np.ones(numbers.size, np.int64)
    for position in range(1, MOST_VARINT_BYTES):
        longer = numbers >= 1 << 7 * position
        if not longer.any():
            break
        lengths += longer
    return lengths


def decode_numbers(data: memoryview) -> Numbers:
    """Every varint in the bytes; an error if the last is cut off, or if one is longer than it need be."""
    encoded: Bytes = np.frombuffer(data, np.uint8)
    if not np.any(encoded > 0x7F):
        return encoded.astype(np.int64)
    ends = np.flatnonzero(encoded < 0x80)
    if not ends.size or ends[-1] != encoded.size - 1:
        raise broken("the last of a list of numbers is cut off")
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > MOST_VARINT_BYTES or np.any((encoded[ends] == 0) & (lengths > 1)):
        raise broken("one of a list of numbers is too long")
    return joined_septets(encoded, starts, lengths)


def numbers_in_turn(data: memoryview) -> Iterator[Numbers]:
    """The same numbers, some at a time."""
    while data:
        some = whole_numbers(data)
        yield decode_numbers(some)
        data = data[len(some) :]


def whole_numbers(data: memoryview) -> memoryview:
    """The first numbers of a list, as many as are taken at once."""
    if len(data) <= BYTES_AT_ONCE:
        return data
    for end in range(BYTES_AT_ONCE, BYTES_AT_ONCE - MOST_VARINT_BYTES, -1):
        if data[end - 1] < 0x80:
            return data[:end]
    raise broken("one of a list of numbers is too long")


def joined_septets(encoded: Bytes, starts: Numbers, lengths: Numbers) -> Numbers:
    numbers = np.zeros(starts.size, np.int64)
    for position in range(int(lengths.max())):
        longer = lengths > position
        septets = encoded[starts[longer] + position].astype(np.int64) & 0x7F
        numbers[longer] |= septets << 7 * position
    return numbers
