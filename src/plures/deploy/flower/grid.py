"""Our transport on Flower's Grid: in a ServerApp of `flwr run` as in a process of our own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from plures.deploy.flower.links import SuperLinkError
from plures.deploy.flower.packing import packed, unpacked
from plures.deploy.transport import Answer, Failure, FailureKind, Letter, Ticket

KINDS: dict[int, FailureKind] = {
    ErrorCode.MESSAGE_UNAVAILABLE: "late",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "late",
    ErrorCode.NODE_UNAVAILABLE: "gone",
    ErrorCode.CLIENT_APP_CRASHED: "gone",
}
"""What Flower says of a message; every other error is one of the program on the node."""
QUERY = "query"


class OnGrid:
    """Letters as messages of Flower, each with its own time to live."""

    def __init__(self, grid: Grid, *, ended: Callable[[BaseException | None], None] = lambda trouble: None) -> None:
        self.grid, self.ended = grid, ended

    def nodes(self) -> Collection[int]:
        return list(self.grid.get_node_ids())

    def push(self, letters: Sequence[Letter]) -> list[Ticket]:
        messages = [Message(packed(letter.data), letter.node, QUERY, ttl=letter.seconds) for letter in letters]
        tickets = list(self.grid.push_messages(messages))
        if len(tickets) != len(letters) or not all(tickets):
            raise SuperLinkError(
                f"The SuperLink does not take these messages, of up to {max(len(letter.data) for letter in letters)} "
                "bytes: its log says why."
            )
        return tickets

    def pull(self, tickets: Collection[Ticket]) -> list[Answer]:
        """Errors may come in the SuperLink's name: which letter they are about is in the message they answer."""
        return [answer_of(message) for message in self.grid.pull_messages(list(tickets))]

    def close(self, trouble: BaseException | None = None) -> None:
        self.ended(trouble)


def answer_of(message: Message) -> Answer:
    ticket = message.metadata.reply_to_message_id
    if not message.has_error():
        return Answer(ticket, unpacked(message.content))
    error = message.error
    kind = KINDS.get(error.code, "failed")
    reasons = {"late": "has not answered in time", "gone": "went away", "failed": "has failed"}
    return Answer(ticket, failure=Failure(kind, f"{reasons[kind]} (Flower's error {error.code})"))
