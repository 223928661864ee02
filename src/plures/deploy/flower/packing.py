"""Bytes as Flower carries them."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

SMALL = 4_000_000
"""Bytes that go as one object; more goes as an array, which Flower cuts in pieces."""
RECORD, NAME = "plures", "letter"


def packed(data: bytes) -> RecordDict:
    if len(data) <= SMALL:
        return RecordDict({RECORD: ConfigRecord({NAME: data})})
    return RecordDict({RECORD: ArrayRecord({NAME: Array("uint8", (len(data),), "raw", data)})})


def unpacked(content: RecordDict) -> bytes:
    """The bytes of a message; of one that is not ours, none."""
    record = content.get(RECORD)
    value = None if record is None else record.get(NAME)
    if isinstance(value, Array):
        return value.data
    return value if isinstance(value, bytes) else b""
