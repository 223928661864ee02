"""What a message takes on the way, to the byte: codes for values and positions, and the wire that uses them."""

from plures.wire.codec import Codec
from plures.wire.message import decode, decoded_bytes, encode, size
from plures.wire.positions import POSITION_CODES, PositionCode
from plures.wire.values import CODES, Code, error_bound

__all__ = [
    "CODES",
    "POSITION_CODES",
    "Code",
    "Codec",
    "PositionCode",
    "decode",
    "decoded_bytes",
    "encode",
    "error_bound",
    "size",
]
