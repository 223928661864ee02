"""Reads bytes from front to back and never past their end; also whole numbers as LEB128 varints, one at a time."""

from __future__ import annotations

from plures.core.errors import InvalidMessage

MOST_VARINT_BYTES = 9
"""Of seven bits each: every number fits into a signed integer of 64 bits."""

MOST_TOLD = 300
"""Characters of what is wrong: names in it may be of any length."""


def broken(what: str) -> InvalidMessage:
    """The error for bytes that cannot be decoded."""
    remedy = "Have it sent again, and use the same version of Plures on both sides"
    return InvalidMessage(f"This is no whole message: {what[:MOST_TOLD]}. {remedy}.")


def encode_number(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the highest bit says that more follow."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def number_bytes(number: int) -> int:
    """How many bytes `encode_number` takes."""
    return max(1, -(-number.bit_length() // 7))


class Reader:
    """A place in some bytes, which moves on with each reading."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._place = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._place

    def take(self, count: int) -> memoryview:
        if count > self.left:
            raise broken(f"{count} bytes are needed at byte {self._place}, but only {self.left} are left")
        self._place += count
        return self._data[self._place - count : self._place]

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        number = 0
        for position in range(MOST_VARINT_BYTES):
            byte = self.byte()
            number |= (byte & 0x7F) << 7 * position
            if byte < 0x80:
                if byte == 0 and position:
                    break
                return number
        raise broken(f"the number that ends at byte {self._place} is too long")
