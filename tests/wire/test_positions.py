"""Which coordinates are sent: every code gives the mask back, and the smallest is chosen."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plures.core.errors import InvalidMessage
from plures.wire.positions import (
    POSITION_CODES,
    bitmap_bytes,
    num_runs,
    position_bytes,
    read_positions,
    smallest_code,
    write_positions,
)
from plures.wire.reader import Reader, encode_number
from tests.wire.helpers import masks

CODES_FOR_ANY = ["bitmap", "indices", "blocks"]
flat_masks = masks.map(lambda mask: mask.reshape(-1).numpy())


def mask_of(numel, *coordinates):
    mask = np.zeros(numel, bool)
    mask[list(coordinates)] = True
    return mask


def read(code, encoded, numel):
    reader = Reader(memoryview(encoded))
    mask = read_positions(code, reader, numel)
    assert reader.left == 0
    return mask


@given(flat_masks, st.sampled_from(CODES_FOR_ANY))
@settings(deadline=None)
def test_every_code_gives_the_mask_back_in_the_bytes_it_said(mask, code):
    encoded = write_positions(code, mask)
    assert len(encoded) == position_bytes(code, mask)
    if len(encoded) <= bitmap_bytes(mask.size):
        assert np.array_equal(read(code, encoded, mask.size), mask)
    else:
        assert code != smallest_code(mask)[0]


@pytest.mark.parametrize(
    ("code", "density", "block", "least"),
    [
        ("indices", 0.1, 1, 100_000),
        ("indices", 0.01, 1, 10_000),
        ("blocks", 0.9, 2, 80_000),
        ("blocks", 0.5, 37, 10_000),
    ],
)
def test_positions_of_a_large_tensor_come_back_although_they_are_read_in_pieces(code, density, block, least):
    """A million coordinates; a run of blocks takes two numbers, and begins at a block in density * (1 - density)."""
    mask = np.repeat(np.random.default_rng(0).random(1_000_000 // block) < density, block)
    encoded = write_positions(code, mask)
    assert 0.95 * least < len(encoded) < bitmap_bytes(mask.size)
    assert np.array_equal(read(code, encoded, mask.size), mask)


@given(flat_masks)
@example(mask_of(1000, 3, 4, 5, 900))
@settings(deadline=None)
def test_the_smallest_code_is_chosen_and_of_equal_ones_the_first(mask):
    possible = POSITION_CODES if mask.all() else CODES_FOR_ANY
    sizes = {code: len(write_positions(code, mask)) for code in possible}
    assert smallest_code(mask) == (min(sizes, key=sizes.get), min(sizes.values()))


@pytest.mark.parametrize(
    ("code", "mask", "encoded"),
    [
        ("all", mask_of(3, 0, 1, 2), ""),
        ("bitmap", mask_of(10, 0, 3, 9), "0902"),
        # gaps 3, 0, 0 and 894 = 0x37e, in 5 bytes
        ("indices", mask_of(1000, 3, 4, 5, 900), "05030000fe06"),
        # begin after 3, end 2 + 1 later, begin 893 + 1 later, end 0 + 1 later
        ("blocks", mask_of(1000, 3, 4, 5, 900), "050302fd0600"),
        ("indices", mask_of(1000), "00"),
        ("blocks", mask_of(1000), "00"),
        ("blocks", mask_of(1000, *range(1000)), "0300e707"),
    ],
)
def test_codes_are_as_counted_by_hand(code, mask, encoded):
    assert write_positions(code, mask).hex() == encoded
    assert position_bytes(code, mask) == len(encoded) // 2


def test_all_says_nothing():
    assert read("all", b"", 5) is None


@pytest.mark.parametrize("numel", [10_000, 200_000])
def test_each_code_has_its_use(numel):
    rng = np.random.default_rng(0)
    assert smallest_code(np.ones(numel, bool))[0] == "all"
    assert smallest_code(rng.random(numel) < 0.5)[0] == "bitmap"
    assert smallest_code(rng.random(numel) < 0.01)[0] == "indices"
    channels = np.repeat(rng.random(numel // 100) < 0.5, 100)  # pruned channels
    assert smallest_code(channels)[0] == "blocks"
    corner = np.zeros((100, numel // 100), bool)
    corner[:50, : numel // 200] = True  # a narrower network
    assert smallest_code(corner.reshape(-1))[0] == "blocks"
    assert smallest_code(~(rng.random(numel) < 0.001))[0] == "blocks"


def test_an_empty_tensor_has_nothing_to_say():
    assert smallest_code(np.zeros(0, bool)) == ("all", 0)
    for code in CODES_FOR_ANY:
        assert read(code, b"" if code == "bitmap" else b"\0", 0).size == 0


@given(flat_masks)
def test_runs_are_counted(mask):
    assert num_runs(mask) == sum(1 for part in "".join("x" if held else " " for held in mask).split() if part)


def listed(*numbers):
    encoded = b"".join(map(encode_number, numbers))
    return encode_number(len(encoded)) + encoded


@pytest.mark.parametrize(
    ("code", "encoded"),
    [
        ("bitmap", b"\xff"),
        ("bitmap", b"\xff\x08"),  # an eleventh bit, of 11 places
        ("indices", listed(11)),
        ("indices", listed(5, 5)),
        ("indices", listed(0, 0, 0)),  # longer than the bitmap
        ("indices", b"\x03\x00"),
        ("blocks", listed(1)),
        ("blocks", listed(11, 0)),
        ("blocks", listed(5, 6)),
    ],
)
def test_positions_beyond_the_tensor_are_refused(code, encoded):
    with pytest.raises(InvalidMessage):
        read(code, encoded, 11)


@pytest.mark.parametrize("code", ["indices", "blocks"])
def test_positions_whose_sum_overflows_are_refused(code):
    huge = 2**63 - 1
    for numbers in ([huge, huge], [huge] * 4, [huge, 1]):
        with pytest.raises(InvalidMessage, match="beyond"):
            read(code, listed(*numbers), 10_000)


def test_a_block_may_end_with_the_tensor():
    assert np.array_equal(read("blocks", listed(5, 5), 11), mask_of(11, *range(5, 11)))
    assert np.array_equal(read("indices", listed(10), 11), mask_of(11, 10))
