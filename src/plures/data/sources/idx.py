"""The IDX format of MNIST and its kin, packed by gzip or not."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from plures.data.sources.reading import Array, Unpacked, open_file, reading, wrong

KINDS = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""By the third byte of a file; the fourth is the number of dimensions."""

PIECE_BYTES = 2**18


def read_idx(path: Path, *, ndim: int) -> Array:
    """The array of a file, in memory once and free to be changed."""
    with reading(path), open_file(path) as file:
        dtype, shape = _header(path, file, ndim)
        values = np.empty(shape, dtype)
        count = _fill(values, file)
        if count < values.nbytes or file.read(1):
            than = "shorter" if count < values.nbytes else "longer"
            raise wrong(path, f"is {than} than its header says, which is {values.nbytes} bytes for {shape}")
    return values.astype(dtype.newbyteorder("="), copy=False)


def _fill(values: Array, file: Unpacked) -> int:
    """Reads bytes to where they stay, a piece at a time: a large file is never in memory twice."""
    place, count = values.view(np.uint8).data.cast("B"), 0
    while read := file.readinto(place[count : count + PIECE_BYTES]):
        count += read
    return count


def _header(path: Path, file: Unpacked, ndim: int) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in KINDS:
        raise wrong(path, f"is no IDX file: it begins with {start.hex() or 'nothing'}")
    if start[3] != ndim:
        raise wrong(path, f"has {start[3]} dimensions, not {ndim}", "Put the file of images or labels it is named for")
    shape = struct.unpack(f">{ndim}I", file.read(4 * ndim))
    if 0 in shape:
        raise wrong(path, "holds no examples")
    return np.dtype(KINDS[start[2]]), shape
