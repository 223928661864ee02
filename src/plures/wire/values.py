"""Codes for values: as they are, or rounded with a stated error."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Literal, get_args

import torch
from torch import Tensor

from plures.core.errors import InvalidConfig, InvalidMessage, did_you_mean
from plures.wire.bits import from_bytes, to_bytes
from plures.wire.reader import broken

Code = Literal["exact", "float16", "bfloat16", "int8"]
CODES: tuple[Code, ...] = get_args(Code)
"""By number."""
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}

LEVELS = 127
"""Of int8 on either side of zero."""
STEP_BYTES = 4
STEP_BITS = 17
"""Significant bits of a step: with the 7 of a level they fit into the 24 of float32, so that products are exact."""
SMALLEST_STEP_EXPONENT = -149
"""Of the smallest number above zero in float32."""
LARGEST_STEP = 2.0**128 - 2.0 ** (128 - STEP_BITS)
"""The largest number of float32 with so few bits."""


def check_code(what: str, code: str) -> None:
    """An error unless there is such a code."""
    if code not in CODES:
        raise InvalidConfig(f"{what} is {code!r}, which is no code for values. {did_you_mean(str(code), CODES)}")


def value_bytes(code: Code, dtype: torch.dtype, count: int) -> int:
    """How many bytes `write_values` takes for so many values."""
    if dtype == torch.bool:  # a mask has positions only
        return 0
    return {"exact": dtype.itemsize * count, "int8": STEP_BYTES + count}.get(code, 2 * count)


def used_code(code: Code, dtype: torch.dtype, count: int) -> Code:
    """The code asked for, if it may round such values and saves anything; else "exact"."""
    saves = value_bytes(code, dtype, count) < value_bytes("exact", dtype, count)
    return code if dtype.is_floating_point and saves else "exact"


def write_values(name: str, code: Code, flat: Tensor, generator: torch.Generator | None) -> bytes:
    """The values of a flat tensor; `name` is for messages."""
    if code == "exact":
        return to_bytes(flat)
    if code == "int8":
        return write_int8(name, flat, generator)
    half = flat.to(HALVES[code])
    if bool((half.isinf() & flat.isfinite()).any()):
        largest, other = torch.finfo(half.dtype).max, "'bfloat16'" if code == "float16" else "'exact'"
        raise InvalidMessage(f"'{name}' has values that {code} cannot hold: its largest is {largest:g}. Use {other}.")
    return to_bytes(half)


def read_values(code: Code, data: memoryview, dtype: torch.dtype) -> Tensor:
    """The inverse of `write_values`, but for the rounding; a flat tensor in memory of its own."""
    if code == "exact":
        return from_bytes(data, dtype)
    if code == "int8":
        return read_int8(data, dtype)
    return from_bytes(data, HALVES[code]).to(dtype)


def int8_step(what: str, flat: Tensor) -> float:
    """The largest magnitude over 127, rounded up to few enough bits; 0 if every value is 0."""
    largest = float(flat.abs().max()) if flat.numel() else 0.0
    if not math.isfinite(largest):
        raise InvalidMessage(f"{what} has values that are no finite numbers, which int8 cannot hold. Use 'bfloat16'.")
    if largest > LEVELS * LARGEST_STEP:
        raise InvalidMessage(f"{what} has values too large for int8 with a step in float32. Use 'exact'.")
    share = largest / LEVELS  # 0 too where that is less than the smallest number
    exponent = math.frexp(share)[1] if share else SMALLEST_STEP_EXPONENT
    unit = Fraction(2) ** max(exponent - STEP_BITS, SMALLEST_STEP_EXPONENT)
    return float(math.ceil(Fraction(largest) / LEVELS / unit) * unit)


def write_int8(name: str, flat: Tensor, generator: torch.Generator | None) -> bytes:
    """The step, and of each value how many steps: up or down at random, so that the mean is the value."""
    if generator is None:
        raise InvalidConfig("The code 'int8' rounds at random: give a generator to draw from.")
    step = int8_step(f"'{name}'", flat)
    draws = torch.rand(flat.shape, generator=generator)
    levels = flat.to(torch.float64).div(step or 1.0).add_(draws).floor_().clamp_(-LEVELS, LEVELS)
    return struct.pack("<f", step) + to_bytes(levels.to(torch.int8))


def read_int8(data: memoryview, dtype: torch.dtype) -> Tensor:
    (step,) = struct.unpack("<f", data[:STEP_BYTES])
    levels = from_bytes(data[STEP_BYTES:], torch.int8)
    if not 0 <= step < math.inf or bool((levels < -LEVELS).any()):
        raise broken(f"its int8 values are no levels up to {LEVELS} of a step of {step}")
    # A step is rounded up, so that the largest level may lie just beyond the largest number of the dtype.
    most = torch.finfo(dtype).max
    wide = torch.promote_types(dtype, torch.float32)
    return levels.to(wide).mul_(step).clamp_(-most, most).to(dtype)


def error_bound(code: Code, tensor: Tensor) -> Tensor:
    """How far each value may at most be from what arrives; in float32 and float64, int8 stays strictly below.

    exact: 0. float16: 2**-11 of the value, bfloat16: 2**-8 of it, or the code's smallest number, if that is more.
    int8: a step, the largest magnitude over 127, rounded up by at most 2**-16 of it; in a tensor of 16 bits, plus
    the rounding of its own dtype.
    """
    size = tensor.detach().abs().to(torch.float64)
    if code == "exact" or not tensor.is_floating_point():
        return torch.zeros_like(size)
    if code in HALVES:
        return rounding(size, HALVES[code])
    step = int8_step("The tensor", tensor.detach())
    return torch.full_like(size, step) + (rounding(size + step, tensor.dtype) if tensor.dtype.itemsize == 2 else 0.0)


def rounding(size: Tensor, dtype: torch.dtype) -> Tensor:
    """Bound of what a number of that size loses when it is rounded to a dtype."""
    limits = torch.finfo(dtype)
    return (size * limits.eps / 2).clamp(min=limits.smallest_normal * limits.eps)
