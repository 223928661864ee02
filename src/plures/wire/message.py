"""A whole message as bytes, back again, and its exact size without either."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import torch

from plures.core.errors import InvalidMessage
from plures.core.types import Params, sum_bytes
from plures.core.wire import Message
from plures.wire.reader import Reader, broken, encode_number
from plures.wire.reading import Received
from plures.wire.records import Record, masked_record, plain_record
from plures.wire.values import Code, check_code

MAGIC = b"PLUR"
VERSION = 1
FRAME_BYTES = len(MAGIC) + 1 + 4
"""Magic, version and checksum."""
MOST_TENSORS = 1 << 16
"""In one message."""
TENSOR_BYTES = 8192
"""More than a tensor takes besides its values, with its name, its shape and what was held of it: empty ones cost the
receiver more than they cost the sender."""


def encode(message: Message, *, code: Code = "exact", generator: torch.Generator | None = None) -> bytes:
    """The message as bytes; only the code "int8" draws from the generator."""
    check_code("code", code)
    records = [part for record in records_of(message, code) for part in record.write(generator)]
    body = b"".join([opening(message), *records])
    return MAGIC + struct.pack("<BI", VERSION, zlib.crc32(body)) + body


def size(message: Message, *, code: Code = "exact") -> int:
    """How many bytes `encode` takes, without encoding."""
    check_code("code", code)
    return FRAME_BYTES + len(opening(message)) + sum(record.num_bytes for record in records_of(message, code))


def decode(data: bytes | bytearray | memoryview, *, most_bytes: int) -> Message:
    """The message in those bytes, in memory of its own; an error if its `decoded_bytes` are more than `most_bytes`."""
    body = checked_body(memoryview(data).cast("B"))
    try:
        return read_body(Reader(body), most_bytes)
    except MemoryError as error:
        raise broken("there is not enough memory for its tensors") from error


def decoded_bytes(message: Message) -> int:
    """What `decode` must be allowed: memory of all values, and a fixed number of bytes for each tensor."""
    return memory_of(message) + TENSOR_BYTES * num_tensors(message)


def memory_of(message: Message) -> int:
    values, held = message.parcel
    return sum_bytes(values.values()) + sum_bytes((held or {}).values()) + sum_bytes(message.exact.values())


def num_tensors(message: Message) -> int:
    """As they are sent: what was held mostly comes with the values."""
    values, held = message.parcel
    apart = 0 if held is None else sum(not comes_with_values(values, held, name) for name in held)
    return len(values) + apart + len(message.exact)


def opening(message: Message) -> bytes:
    """The beginning of the body: memory of the tensors, whether it says what was held, number of tensors."""
    number = num_tensors(message)
    if number > MOST_TENSORS:
        raise InvalidMessage(f"The message has {number} tensors, more than {MOST_TENSORS}. Send fewer, larger ones.")
    has_held = message.parcel.held is not None
    return encode_number(memory_of(message)) + bytes([has_held]) + encode_number(number)


def records_of(message: Message, code: Code) -> Iterator[Record]:
    """Each value and after it what was held of it, then what no code may round."""
    values, held = message.parcel
    if held is not None:
        check_held(values, held)
    for name, value in values.items():
        if held is None:
            yield plain_record("values", name, value, code)
        elif comes_with_values(values, held, name):
            yield masked_record(name, value, held[name], code)
        else:
            yield plain_record("values", name, value, code)
            yield plain_record("held", name, held[name], "exact")
    for name, value in message.exact.items():
        yield plain_record("exact", name, value, "exact")


def comes_with_values(values: Params, held: Params, name: str) -> bool:
    """Whether the positions of the values also say what was held; truth values have no positions to spare."""
    return held[name].dtype == torch.bool and name in values and values[name].dtype != torch.bool


def check_held(values: Params, held: Params) -> None:
    for name in values.keys() ^ held.keys():
        missing = "but no such values" if name in held else "but not what was held of it, as of others"
        raise InvalidMessage(f"The message has '{name}', {missing}. Give `held` the names of the values, or None.")
    for name, value in values.items():
        if held[name].shape != value.shape:
            shapes = f"{tuple(held[name].shape)}, but its values have {tuple(value.shape)}"
            raise InvalidMessage(f"What was held of '{name}' has the shape {shapes}. Give both the same shape.")


def checked_body(data: memoryview) -> memoryview:
    """What follows the checksum, if it agrees."""
    reader = Reader(data)
    if bytes(reader.take(min(len(MAGIC), reader.left))) != MAGIC:
        raise broken(f"it does not begin with {MAGIC!r}")
    if (version := reader.byte()) != VERSION:
        raise broken(f"it has version {version} of the format, not {VERSION}")
    (checksum,) = struct.unpack("<I", reader.take(4))
    body = reader.take(reader.left)
    if zlib.crc32(body) != checksum:
        raise broken("its checksum is not that of its content")
    return body


def read_body(reader: Reader, most_bytes: int) -> Message:
    declared, flag, number = reader.number(), reader.byte(), reader.number()
    if flag > 1 or number > MOST_TENSORS:
        raise broken(f"it has {number} tensors (at most {MOST_TENSORS}) and the flag {flag} (0 or 1)")
    if (needed := declared + number * TENSOR_BYTES) > most_bytes:
        told = f"its {number} tensors take {needed} bytes, {TENSOR_BYTES} for each and {declared} for their values"
        raise broken(f"{told}, more than most_bytes = {most_bytes}")
    received = Received(most_bytes=declared, has_held=bool(flag))
    for _ in range(number):
        received.read(reader)
    if reader.left:
        raise broken(f"{reader.left} bytes are left after its last tensor")
    return received.message()
