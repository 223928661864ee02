"""What server and nodes tell each other: a heading, and beside it at most one message of `plures.wire`.

Personal parameters have no place in it: a heading holds facts, counts and metrics, and the message of a reply is what
`Result.message` gives, which is made of the shared part alone.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from plures.core.errors import InvalidMessage
from plures.core.losses import LossKind
from plures.core.types import Facts

MAGIC = b"PLDM"
VERSION = 1
MOST_HEADING_BYTES = 4 * 2**20
MOST_TIME = 2**53

OrderKind = Literal["hello", "train", "evaluate", "finish", "give"]
ReplyKind = Literal["here", "trained", "scored", "finished", "taken", "failed"]
Where = Literal["order", "data", "state", "work"]
"""What went wrong on a node: what it was told, its examples, what it keeps, or its work."""

Token = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Count = Annotated[int, Field(ge=0, le=MOST_TIME)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Heading(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, ser_json_inf_nan="constants")


class Moment(Heading):
    """Which order of which run: later starts of the server count more than later rounds."""

    run: Token
    start: Count
    """When the server was started, in seconds; a server that goes on has a later one."""
    round: Count

    @property
    def when(self) -> tuple[int, int]:
        return self.start, self.round


class Order(Moment):
    """What the server asks of a node."""

    kind: OrderKind
    experiment: Token
    client: Count = 0
    clients: Count = 0
    """Of the whole population."""
    rounds: Count | None = None
    facts: dict[str, float | int] | None = None
    counted: Count | None = None
    """The last round of this client whose work is in the shared part; None: there is none yet."""
    models: list[str] = []
    splits: list[str] = []

    def facts_given(self) -> Facts:
        try:
            return Facts(**(self.facts or {}))  # type: ignore[arg-type]
        except TypeError as error:
            raise InvalidMessage(f"The order has no such facts: {error}.") from error


class Score(Heading):
    """How a model does on one split of a node's examples."""

    model: str
    split: str
    examples: Count
    values: dict[str, float]


class Reply(Moment):
    """What a node answers."""

    kind: ReplyKind
    client: Count = 0
    # here
    name: Name | None = None
    experiment: Token | None = None
    version: str | None = None
    examples: dict[str, Count] = {}
    """Of each split."""
    classes: Count | None = None
    broken: Where | None = None
    """What keeps the node from taking part."""
    newcomer: bool = False
    """It only wants the shared part."""
    # trained
    losses: dict[str, float] = {}
    passes: float = 0.0
    forward_passes: float = 0.0
    whole_passes: float = 0.0
    searched: list[Count] = []
    used: dict[str, Count] = {}
    seconds: dict[str, float] = {}
    # scored
    scores: list[Score] = []
    # failed
    error: str | None = None
    """The type of an exception; its text might tell of the examples."""
    where: Where | None = None
    loss_kind: LossKind | None = None

    @classmethod
    def to(cls, order: Order | None, kind: ReplyKind, **facts: Any) -> Reply:
        """The answer to an order; to one that could not be read, to none."""
        moment: dict[str, Any] = {"run": "0" * 16, "start": 0, "round": 0}
        if order is not None:
            moment = {name: getattr(order, name) for name in ("run", "start", "round", "client")}
        return cls(kind=kind, **moment, **facts)


Some = TypeVar("Some", bound=Heading)


class Opened(NamedTuple):
    """A reply as it has come."""

    reply: Reply
    body: memoryview


def sealed(heading: Heading, body: bytes | memoryview = b"") -> bytes:
    """A heading and a message of `plures.wire` as bytes; the message has a checksum of its own."""
    text = heading.model_dump_json(exclude_defaults=True).encode()
    return b"".join([MAGIC, struct.pack("<BII", VERSION, zlib.crc32(text), len(text)), text, body])


def opened_order(data: bytes) -> tuple[Order, memoryview]:
    return opened(data, Order)


def opened_reply(data: bytes) -> Opened:
    return Opened(*opened(data, Reply))


def opened(data: bytes, kind: type[Some]) -> tuple[Some, memoryview]:
    """What was sealed; whatever else it may be is one clear error."""
    view = memoryview(data).cast("B")
    start = len(MAGIC) + struct.calcsize("<BII")
    if len(view) < start or bytes(view[: len(MAGIC)]) != MAGIC:
        raise InvalidMessage(f"This is no message between server and nodes: it does not begin with {MAGIC!r}.")
    version, checksum, size = struct.unpack("<BII", view[len(MAGIC) : start])
    if version != VERSION:
        raise InvalidMessage(f"The message has version {version}, not {VERSION}: install the same Plures everywhere.")
    text = bytes(view[start : start + size])
    if size > MOST_HEADING_BYTES or len(text) < size or zlib.crc32(text) != checksum:
        raise InvalidMessage("The heading of the message is cut, too long, or not what its checksum says.")
    return parsed(text, kind), view[start + size :]


def parsed(text: bytes, kind: type[Some]) -> Some:
    try:
        table: Any = json.loads(text)
        return kind.model_validate(table)
    except (ValueError, RecursionError, ValidationError) as error:
        raise InvalidMessage(f"The heading of the message is no {kind.__name__.lower()}.") from error
