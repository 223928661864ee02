"""From bytes that anybody may have sent to the tensors of a message: nothing is allocated before it is checked."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from plures.core.types import Params
from plures.core.wire import Message, Parcel
from plures.wire.bits import DTYPES, MOST_DIMENSIONS, scattered
from plures.wire.positions import POSITION_CODES, Mask, PositionCode, read_positions
from plures.wire.reader import Reader, broken
from plures.wire.records import MOST_NAME_BYTES, SECTIONS, Section
from plures.wire.values import CODES, Code, read_values, value_bytes

Choice = TypeVar("Choice")


class Heading(NamedTuple):
    """What is known of a tensor before its positions and values are read."""

    section: Section
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    positions: PositionCode
    code: Code

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Of memory that the tensor takes, with what was held of it, if that comes along."""
        return self.numel * (self.dtype.itemsize + (self.section == "masked"))


def read_heading(reader: Reader) -> Heading:
    section = chosen(SECTIONS, reader.byte(), "section")
    name = read_name(reader)
    dtype = chosen(DTYPES, reader.byte(), "dtype")
    shape = read_shape(reader, name)
    positions = chosen(POSITION_CODES, reader.byte(), "position code")
    code = chosen(CODES, reader.byte(), "value code")
    may_round = dtype.is_floating_point and section in ("values", "masked")
    if (code != "exact" and not may_round) or (dtype == torch.bool and section == "masked"):
        raise broken(f"'{name}' of {dtype} comes as {code} in the section {section}")
    return Heading(section, name, dtype, shape, positions, code)


def chosen(known: tuple[Choice, ...], number: int, what: str) -> Choice:
    if number >= len(known):
        raise broken(f"there is no {what} {number}")
    return known[number]


def read_name(reader: Reader) -> str:
    length = reader.number()
    if length > MOST_NAME_BYTES:
        raise broken(f"a name has {length} bytes, more than {MOST_NAME_BYTES}")
    encoded = bytes(reader.take(length))
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError as error:
        raise broken(f"the name {encoded[:40]!r} is not UTF-8") from error


def read_shape(reader: Reader, name: str) -> tuple[int, ...]:
    """An error if torch could not lay out such a tensor, even if it is empty."""
    dimensions = reader.number()
    if dimensions > MOST_DIMENSIONS:
        raise broken(f"'{name}' has {dimensions} dimensions, more than {MOST_DIMENSIONS}")
    shape = tuple(reader.number() for _ in range(dimensions))
    if math.prod(max(size, 1) for size in shape) >= 1 << 59:  # times 8 bytes, still below 2**63
        raise broken(f"'{name}' has the shape {shape}, which is too large for any tensor")
    return shape


def read_tensor(reader: Reader, heading: Heading) -> tuple[Tensor, Tensor | None]:
    """The tensor, and where its values were sent, if those are masked."""
    mask = read_positions(heading.positions, reader, heading.numel)
    if heading.dtype == torch.bool:
        return flags(mask, heading), None
    count = heading.numel if mask is None else int(np.count_nonzero(mask))
    data = reader.take(value_bytes(heading.code, heading.dtype, count))
    values = read_values(heading.code, data, heading.dtype)
    whole = values if mask is None else scattered(values, mask)
    return shaped(whole, heading), flags(mask, heading) if heading.section == "masked" else None


def flags(mask: Mask | None, heading: Heading) -> Tensor:
    """A mask in its shape; None is True everywhere."""
    # numpy's memory: if there is too little, that is a MemoryError
    return shaped(torch.from_numpy(np.ones(heading.numel, np.bool_) if mask is None else mask), heading)


def shaped(flat: Tensor, heading: Heading) -> Tensor:
    """In the shape of the heading; numpy's empty arrays have strides that torch would not give them."""
    return flat.reshape(heading.shape) if heading.numel else torch.empty(heading.shape, dtype=flat.dtype)


class Received:
    """A message that is still being read; tensors may take `most_bytes` in all."""

    def __init__(self, *, most_bytes: int, has_held: bool) -> None:
        self.bytes_left = most_bytes
        self._values: Params = {}
        self._held: Params = {}
        self._has_held = has_held
        self._exact: Params = {}

    def read(self, reader: Reader) -> None:
        """One more tensor."""
        heading = read_heading(reader)
        self._check(heading)
        self.bytes_left -= heading.num_bytes
        if self.bytes_left < 0:
            raise broken(f"with '{heading.name}' its tensors take more than the bytes it declares")
        tensor, mask = read_tensor(reader, heading)
        self._keep(heading, tensor, mask)

    def _check(self, heading: Heading) -> None:
        """A name comes once, and what was held of a value comes after it, in its shape."""
        name, section = heading.name, heading.section
        if section in ("masked", "held") and not self._has_held:
            raise broken(f"it says what was held of '{name}', but also that it says of none")
        if section == "held" and (name not in self._values or self._values[name].shape != heading.shape):
            raise broken(f"it says what was held of '{name}', but has no such values of shape {heading.shape}")
        if name in self._kept(section):
            raise broken(f"'{name}' comes twice")

    def _keep(self, heading: Heading, tensor: Tensor, mask: Tensor | None) -> None:
        self._kept(heading.section)[heading.name] = tensor
        if mask is not None:
            self._kept("held")[heading.name] = mask

    def _kept(self, section: Section) -> Params:
        return {"held": self._held, "exact": self._exact}.get(section, self._values)

    def message(self) -> Message:
        """Once all tensors are there."""
        if self.bytes_left:
            raise broken(f"its tensors take {self.bytes_left} bytes fewer than it declares")
        if self._has_held and self._held.keys() != self._values.keys():
            raise broken("it does not say of every value what was held")
        return Message(Parcel(self._values, self._held if self._has_held else None), self._exact)
