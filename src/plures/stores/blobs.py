"""A client's state as bytes, and back, bit by bit."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Sequence

import torch
from safetensors.torch import load, save
from torch import Tensor

from plures.core.types import Params

CODES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}
"""Names of types in the format; others, and machines with another order of bytes, are left to the library."""
if sys.byteorder != "little":
    CODES = {}

ALIGNMENT = 64
"""Of memory that torch gives to a tensor on a CPU."""


def as_blob(state: Params) -> bytes:
    """In the format of safetensors; the places before the names keep their order, which the format does not."""
    placed = {f"{place}/{name}": value for place, (name, value) in enumerate(owned(state).items())}
    return written(placed) if all(value.dtype in CODES for value in placed.values()) else save(placed)


def written(values: Params) -> bytes:
    """As the library would, which copies several times as much. Wide types come first, so that all are aligned."""
    head, pieces, end = dict[str, object](), list[memoryview](), 0
    for name, value in sorted(values.items(), key=lambda item: -item[1].element_size()):
        begin, end = end, end + value.numel() * value.element_size()
        head[name] = {"dtype": CODES[value.dtype], "shape": list(value.shape), "data_offsets": [begin, end]}
        pieces.append(value.reshape(-1).view(torch.uint8).numpy().data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *pieces])


def from_blob(blob: bytes) -> Params:
    """What was written, in memory of torch's own: where a tensor begins changes how products are rounded."""
    found = load(blob)
    in_order = sorted(found, key=lambda key: int(key.partition("/")[0]))
    return {key.partition("/")[2]: found[key].clone() for key in in_order}


def checksum(key: int, blob: bytes) -> int:
    """Depends on whose the blob is, so that one in another's place is noticed."""
    return zlib.crc32(blob, zlib.crc32(key.to_bytes(8, "little")))


def owned(state: Params) -> Params:
    """The same values on the CPU, each in memory that is its own, laid out as if it had just been read."""
    values, taken = dict[str, Tensor](), set[int]()
    for name, value in state.items():
        here = value.detach().cpu()
        fresh = is_own(here) and here.data_ptr() not in taken
        values[name] = here if fresh else here.clone(memory_format=torch.contiguous_format)
        taken.add(values[name].data_ptr())
    return values


def is_own(value: Tensor) -> bool:
    """Whether it has a whole piece of torch's memory, in the usual order."""
    whole = value.untyped_storage().nbytes() == value.numel() * value.element_size()
    return whole and value.stride() == usual_strides(value.shape) and value.data_ptr() % ALIGNMENT == 0


def usual_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a tensor that torch has just made."""
    strides, step = list[int](), 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
