"""A transport without a network: nodes are handlers in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from plures.deploy.transport import Answer, Failure, Letter, Ticket

Handle = Callable[[bytes], bytes]


class InProcess:
    """Each letter is answered as soon as somebody asks for the answer, in the order in which it was sent."""

    def __init__(self, nodes: Mapping[int, Handle]) -> None:
        self.handlers = dict(nodes)
        """By node; who is taken out has gone away."""
        self._under_way: dict[Ticket, Letter] = {}
        self._number = 0

    def nodes(self) -> Collection[int]:
        return list(self.handlers)

    def push(self, letters: Sequence[Letter]) -> list[Ticket]:
        tickets = [str(self._number + place) for place in range(len(letters))]
        self._number += len(letters)
        self._under_way |= dict(zip(tickets, letters, strict=True))
        return tickets

    def pull(self, tickets: Collection[Ticket]) -> list[Answer]:
        wanted = [ticket for ticket in self._under_way if ticket in set(tickets)]
        return [self._answer(ticket, self._under_way.pop(ticket)) for ticket in wanted]

    def _answer(self, ticket: Ticket, letter: Letter) -> Answer:
        handle = self.handlers.get(letter.node)
        if handle is None:
            return Answer(ticket, failure=Failure("gone", "the node has gone away"))
        return Answer(ticket, handle(letter.data))

    def close(self, trouble: BaseException | None = None) -> None:
        """Nothing was started."""
