"""What carries letters between the server and its nodes: who is there, out, in, and what can go wrong."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, Protocol

FailureKind = Literal["gone", "late", "failed"]
"""gone: the node went away; late: the time for an answer is over; failed: whatever runs on the node has failed."""

Ticket = str


class Letter(NamedTuple):
    """Bytes for a node, and how long they are of use."""

    node: int
    data: bytes
    seconds: float


class Failure(NamedTuple):
    """Why there will be no answer."""

    kind: FailureKind
    reason: str


class Answer(NamedTuple):
    """What has become of a letter."""

    ticket: Ticket
    data: bytes = b""
    failure: Failure | None = None


class Transport(Protocol):
    """Delivers each letter at most once; who wants more asks again, for orders can be repeated."""

    def nodes(self) -> Collection[int]:
        """Who can be written to now; one that has just died may still be among them."""

    def push(self, letters: Sequence[Letter]) -> list[Ticket]:
        """A ticket for each letter, in order."""

    def pull(self, tickets: Collection[Ticket]) -> list[Answer]:
        """What has come since of these, each once, at once and in any order."""

    def close(self, trouble: BaseException | None = None) -> None:
        """The run is over, well or by an error."""
