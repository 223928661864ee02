"""Codes for which coordinates of a tensor are sent: the smallest is chosen, and its size is known without encoding."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from plures.wire.reader import Reader, broken, encode_number, number_bytes
from plures.wire.varints import Numbers, encode_numbers, numbers_bytes, numbers_in_turn

PositionCode = Literal["all", "bitmap", "indices", "blocks"]
"""all: nothing to say; bitmap: a bit each; indices: the gap before each; blocks: gap and length of each run."""
POSITION_CODES: tuple[PositionCode, ...] = get_args(PositionCode)
"""By number; of equally small ones the first is chosen."""

Mask = npt.NDArray[np.bool_]
"""One truth value per coordinate of a flat tensor."""


def smallest_code(mask: Mask) -> tuple[PositionCode, int]:
    """The code that takes the fewest bytes, and how many."""
    count = int(np.count_nonzero(mask))
    if count == mask.size:
        return "all", 0
    code: PositionCode = "bitmap"
    fewest = bitmap_bytes(mask.size)
    # Each index takes a byte or more, each run two: mostly that rules a code out, and saves the exact count.
    least: dict[PositionCode, int] = {"indices": 1 + count, "blocks": 1 + 2 * num_runs(mask)}
    for other, bound in least.items():
        if bound < fewest and (exactly := position_bytes(other, mask)) < fewest:
            code, fewest = other, exactly
    return code, fewest


def position_bytes(code: PositionCode, mask: Mask) -> int:
    """How many bytes `write_positions` takes."""
    if code == "all":
        return 0
    if code == "bitmap":
        return bitmap_bytes(mask.size)
    length = numbers_bytes(numbers_of(code, mask))
    return number_bytes(length) + length


def write_positions(code: PositionCode, mask: Mask) -> bytes:
    """Where the mask is True; "all" is only for a mask that is True everywhere."""
    if code == "all":
        return b""
    if code == "bitmap":
        return np.packbits(mask, bitorder="little").tobytes()
    encoded = encode_numbers(numbers_of(code, mask))
    return encode_number(len(encoded)) + encoded


def read_positions(code: PositionCode, reader: Reader, numel: int) -> Mask | None:
    """The mask, or None for every coordinate; an error unless the bytes describe coordinates below `numel`."""
    if code == "all":
        return None
    if code == "bitmap":
        return read_bitmap(reader, numel)
    length = reader.number()
    if length > bitmap_bytes(numel):  # never the smallest code
        raise broken(f"positions as {code} take {length} bytes, more than a bitmap of {numel} coordinates")
    gaps = reader.take(length)
    return mask_of_places(gaps, numel) if code == "indices" else mask_of_runs(gaps, numel)


def bitmap_bytes(numel: int) -> int:
    return -(-numel // 8)


def num_runs(mask: Mask) -> int:
    """Runs of consecutive True coordinates."""
    return int(np.count_nonzero(mask[1:] > mask[:-1])) + int(mask[:1].sum())


def numbers_of(code: PositionCode, mask: Mask) -> Numbers:
    return gaps_between(np.flatnonzero(mask) if code == "indices" else edges_of(mask))


def edges_of(mask: Mask) -> Numbers:
    """Where each run of True begins and where it has ended, in turn."""
    inner = np.flatnonzero(mask[1:] != mask[:-1]) + 1
    first, last = np.flatnonzero(mask[:1]), np.flatnonzero(mask[-1:]) + mask.size
    return np.concatenate([first, inner, last])


def gaps_between(places: Numbers) -> Numbers:
    """How many coordinates lie before the first place, and between each place and the one before it."""
    gaps = places.copy()
    gaps[1:] -= places[:-1] + 1
    return gaps


def read_bitmap(reader: Reader, numel: int) -> Mask:
    packed = np.frombuffer(reader.take(bitmap_bytes(numel)), np.uint8)
    if numel % 8 and packed[-1] >> numel % 8:
        raise broken(f"a bitmap has more than its {numel} coordinates")
    return np.unpackbits(packed, count=numel, bitorder="little").view(np.bool_)


def mask_of_places(gaps: memoryview, size: int) -> Mask:
    """True at each place; but for the mask it takes little memory, however many there are."""
    mask = np.zeros(size, np.bool_)
    next_place = 0
    for some in numbers_in_turn(gaps):
        check_reach(some, next_place, size - 1)
        places = next_place + np.cumsum(some + 1) - 1
        mask[places] = True
        next_place = int(places[-1]) + 1
    return mask


def mask_of_runs(gaps: memoryview, numel: int) -> Mask:
    """True from the first edge to the second, from the third to the fourth, and so on."""
    edges = mask_of_places(gaps, numel + 1)  # a last run may end with the tensor
    bits = edges.view(np.uint8)
    np.bitwise_xor.accumulate(bits, out=bits)
    if bits[-1]:
        raise broken("the last of some blocks has no end")
    return edges[:-1]


def check_reach(gaps: Numbers, next_place: int, last: int) -> None:
    """An error if the last place lies beyond; the sum is taken where it cannot overflow."""
    if next_place + float(gaps.sum(dtype=np.float64)) + gaps.size - 1 > last:
        raise broken(f"positions go beyond {last}, the last there is")
