"""Tensors as plain bits: the dtypes that may be sent, and integers of the same size to look at them through."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plures.core.errors import InvalidMessage

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
)
"""By number."""
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By number of bytes."""
MOST_DIMENSIONS = 8

Bits = npt.NDArray[Any]
"""Signed integers, one per value."""


def flat_on_cpu(name: str, tensor: Tensor) -> Tensor:
    """All values in order, without gradients; an error if they are of a kind that cannot be sent."""
    if tensor.layout is not torch.strided or tensor.dtype not in DTYPES or tensor.dim() > MOST_DIMENSIONS:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        what = f"'{name}' is a tensor of {tensor.dim()} dimensions, {tensor.dtype} and {tensor.layout}"
        raise InvalidMessage(
            f"{what}, which cannot be sent. Send dense tensors of {known}, of {MOST_DIMENSIONS} dimensions at most."
        )
    return tensor.detach().to("cpu").reshape(-1).contiguous()


def bits_of(flat: Tensor) -> Bits:
    """The same memory as integers; what is written into them is written into the tensor."""
    bits: Bits = flat.view(INTEGERS[flat.element_size()]).numpy()
    return bits


def nonzero(flat: Tensor) -> npt.NDArray[np.bool_]:
    """Where a value is another number than 0: -0.0 is 0, NaN is not."""
    bits = bits_of(flat)
    found: npt.NDArray[np.bool_] = (bits & np.iinfo(bits.dtype).max if flat.is_floating_point() else bits) != 0
    return found


def to_bytes(flat: Tensor) -> bytes:
    """The values' own bits, the lowest byte of each first."""
    return bits_of(flat).astype(f"<i{flat.element_size()}", copy=False).tobytes()


def from_bytes(data: memoryview, dtype: torch.dtype) -> Tensor:
    """The inverse of `to_bytes`, in memory of its own."""
    bits = np.frombuffer(data, f"<i{dtype.itemsize}").astype(f"=i{dtype.itemsize}", copy=True)
    return torch.from_numpy(bits).view(dtype)


def scattered(values: Tensor, mask: npt.NDArray[np.bool_]) -> Tensor:
    """The values where the mask is True, and zeros elsewhere."""
    bits = bits_of(values)
    whole = np.zeros(mask.size, bits.dtype)
    whole[mask] = bits
    return torch.from_numpy(whole).view(values.dtype)
