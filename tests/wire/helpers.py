"""Messages of every kind, and bytes that are signed but wrong."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from plures.core.wire import Message, Parcel
from plures.wire.bits import DTYPES
from plures.wire.message import FRAME_BYTES, MAGIC, VERSION
from plures.wire.positions import POSITION_CODES
from plures.wire.reader import encode_number
from plures.wire.records import SECTIONS
from plures.wire.values import CODES

FLOATS = [dtype for dtype in DTYPES if dtype.is_floating_point]
SPECIAL = [-0.0, float("inf"), -float("inf"), float("nan")]

shapes = st.one_of(
    st.lists(st.integers(0, 5), max_size=4).map(tuple),
    st.integers(0, 700).map(lambda size: (size,)),
)
names = st.one_of(st.sampled_from(["body.weight", "head.bias", "größe", ""]), st.text(max_size=8)).filter(
    lambda name: name.isprintable()
)


def drawn_mask(shape, density: float, block: int, seed: int) -> Tensor:
    """True at random, in blocks of so many coordinates."""
    numel = int(np.prod(shape))
    blocks = np.random.default_rng(seed).random(-(-numel // block)) < density
    return torch.from_numpy(np.repeat(blocks, block)[:numel].copy()).reshape(shape)


masks = st.builds(
    drawn_mask,
    shapes,
    st.sampled_from([0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0]),
    st.sampled_from([1, 1, 3, 50]),
    st.integers(0, 2**32),
)


def drawn_tensor(dtype: torch.dtype, mask: Tensor, seed: int) -> Tensor:
    """Random bits where the mask is True, zeros elsewhere; special values among those of real numbers."""
    if dtype == torch.bool:
        return mask.clone()
    rng = np.random.default_rng(seed)
    flat = torch.zeros(mask.numel(), dtype=dtype)
    flat.view(torch.uint8)[:] = torch.from_numpy(rng.integers(0, 256, mask.numel() * dtype.itemsize, dtype=np.uint8))
    if dtype.is_floating_point and flat.numel():
        where = torch.from_numpy(rng.integers(0, flat.numel(), len(SPECIAL)))
        flat[where] = torch.tensor(SPECIAL, dtype=dtype)
    return torch.where(mask.reshape(-1), flat, torch.zeros((), dtype=dtype)).reshape(mask.shape)


def finite_tensor(dtype: torch.dtype, mask: Tensor, seed: int, exponent: int) -> Tensor:
    """Normal numbers of a size that every code can hold, zeros off the mask."""
    values = torch.randn(mask.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.where(mask, values * 2.0**exponent, 0.0).to(dtype)


@st.composite
def params(draw, tensor):
    return {name: draw(tensor) for name in draw(st.lists(names, max_size=4, unique=True))}


@st.composite
def held_like(draw, values):
    """What was held of each: mostly a mask that covers its values, sometimes counts."""
    held = {}
    for name, value in values.items():
        numeric = torch.nan_to_num(value.double(), nan=1.0) if value.is_floating_point() else value
        covered = (numeric != 0) | drawn_mask(value.shape, 0.3, 1, draw(st.integers(0, 99)))
        held[name] = covered if draw(st.booleans()) else covered.to(draw(st.sampled_from([torch.float32, torch.int64])))
    return held


@st.composite
def messages(draw, tensor=None):
    tensor = (
        st.builds(drawn_tensor, st.sampled_from(DTYPES), masks, st.integers(0, 2**32)) if tensor is None else tensor
    )
    values = draw(params(tensor))
    held = draw(st.one_of(st.none(), held_like(values)))
    return Message(Parcel(values, held), draw(params(tensor)))


finite_messages = messages(
    st.builds(finite_tensor, st.sampled_from(FLOATS), masks, st.integers(0, 2**32), st.integers(-20, 8))
)


def raw(tensor: Tensor) -> tuple:
    """Everything there is to a tensor, to be compared."""
    return tensor.dtype, tuple(tensor.shape), bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def raw_params(params) -> list | None:
    return None if params is None else [(name, *raw(tensor)) for name, tensor in params.items()]


def raw_message(message: Message) -> tuple:
    return raw_params(message.parcel.values), raw_params(message.parcel.held), raw_params(message.exact)


def signed(body: bytes) -> bytes:
    """A frame whose checksum is right, whatever is in it."""
    return MAGIC + struct.pack("<BI", VERSION, zlib.crc32(body)) + body


def body_of(data: bytes) -> bytes:
    return data[FRAME_BYTES:]


def body(*records: bytes, declared: int, flag: int = 0, number: int | None = None) -> bytes:
    opening = encode_number(declared) + bytes([flag]) + encode_number(len(records) if number is None else number)
    return opening + b"".join(records)


def record(
    payload: bytes = b"",
    *,
    section="values",
    name: bytes = b"w",
    dtype: torch.dtype = torch.float32,
    shape=(2,),
    positions="all",
    code="exact",
) -> bytes:
    """One tensor, right or wrong; codes may also be given as numbers."""
    numbers = [
        known.index(choice) if isinstance(choice, str) else choice
        for known, choice in ((SECTIONS, section), (POSITION_CODES, positions), (CODES, code))
    ]
    head = bytes(numbers[:1]) + encode_number(len(name)) + name
    kind = dtype if isinstance(dtype, int) else DTYPES.index(dtype)
    sizes = b"".join(encode_number(size) for size in (len(shape), *shape))
    return head + bytes([kind]) + sizes + bytes(numbers[1:]) + payload
