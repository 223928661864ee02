"""One tensor of a message as it will be sent: which form, how large, and its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from plures.core.errors import InvalidMessage
from plures.wire.bits import DTYPES, bits_of, flat_on_cpu, nonzero
from plures.wire.positions import POSITION_CODES, Mask, PositionCode, smallest_code, write_positions
from plures.wire.reader import encode_number
from plures.wire.values import CODES, Code, used_code, value_bytes, write_values

Section = Literal["values", "masked", "held", "exact"]
"""masked: values whose positions are also what was held of them."""
SECTIONS: tuple[Section, ...] = get_args(Section)
"""By number."""
MOST_NAME_BYTES = 512


@dataclass(frozen=True, kw_only=True)
class Record:
    """A tensor and the form chosen for it."""

    name: str
    flat: Tensor
    heading: bytes
    """Section, name, dtype and shape."""
    mask: Mask
    """The coordinates that are sent, unless all are."""
    positions: PositionCode
    code: Code
    num_bytes: int
    """Of the whole record."""

    def write(self, generator: torch.Generator | None) -> Iterator[bytes]:
        yield self.heading
        yield bytes([POSITION_CODES.index(self.positions), CODES.index(self.code)])
        yield write_positions(self.positions, self.mask)
        if self.flat.dtype != torch.bool:
            sent = self.flat if self.positions == "all" else self.flat[torch.from_numpy(np.flatnonzero(self.mask))]
            yield write_values(self.name, self.code, sent, generator)


def plain_record(section: Section, name: str, tensor: Tensor, code: Code) -> Record:
    """All of a tensor; whatever is not sent is zero in every bit."""
    flat = flat_on_cpu(name, tensor)
    mask: Mask = bits_of(flat) != 0
    heading = heading_of(section, name, tensor)
    sparse = make_record(name, flat, heading, mask, smallest_code(mask), code)
    if flat.dtype == torch.bool or sparse.positions == "all":
        return sparse
    dense = make_record(name, flat, heading, mask, ("all", 0), code)
    return sparse if sparse.num_bytes < dense.num_bytes else dense


def masked_record(name: str, tensor: Tensor, held: Tensor, code: Code) -> Record:
    """The coordinates that are held, and by that which they are."""
    flat = flat_on_cpu(name, tensor)
    mask: Mask = flat_on_cpu(name, held).numpy()
    if np.any(nonzero(flat) > mask):
        raise InvalidMessage(
            f"'{name}' has values other than 0 where nothing of it is held. Set them to 0, or say that they are held."
        )
    return make_record(name, flat, heading_of("masked", name, tensor), mask, smallest_code(mask), code)


def make_record(
    name: str, flat: Tensor, heading: bytes, mask: Mask, positions: tuple[PositionCode, int], code: Code
) -> Record:
    chosen, position_bytes = positions
    count = flat.numel() if chosen == "all" else int(np.count_nonzero(mask))
    used = used_code(code, flat.dtype, count)
    return Record(
        name=name,
        flat=flat,
        heading=heading,
        mask=mask,
        positions=chosen,
        code=used,
        num_bytes=len(heading) + 2 + position_bytes + value_bytes(used, flat.dtype, count),
    )


def heading_of(section: Section, name: str, tensor: Tensor) -> bytes:
    """What comes before a tensor's positions and values."""
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"The name {name!r} cannot be written in UTF-8. Rename that parameter.") from error
    if len(encoded) > MOST_NAME_BYTES:
        told = f"The name {name[:40]!r}... has {len(encoded)} bytes, more than {MOST_NAME_BYTES}"
        raise InvalidMessage(f"{told}. Rename that parameter, or the modules it is in.")
    shape = b"".join(encode_number(size) for size in (tensor.dim(), *tensor.shape))
    named = bytes([SECTIONS.index(section)]) + encode_number(len(encoded)) + encoded
    return named + bytes([DTYPES.index(tensor.dtype)]) + shape
