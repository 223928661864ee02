"""The server's desk: letters go out, answers come in and wait until somebody asks for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from plures.deploy.transport import Answer, Failure, Letter, Ticket, Transport

POLL_SECONDS = 0.05


class Desk:
    """Keeps account of what is under way; answers that nobody waits for any more are taken in and thrown away."""

    def __init__(self, transport: Transport, poll_seconds: float = POLL_SECONDS) -> None:
        self.transport, self.poll_seconds = transport, poll_seconds
        self._until: dict[Ticket, float] = {}
        """When each letter that is under way is of no use any more."""
        self._come: dict[Ticket, Answer] = {}
        self._unwanted: set[Ticket] = set()

    def send(self, letters: Sequence[Letter]) -> list[Ticket]:
        tickets = self.transport.push(letters) if letters else []
        now = time.monotonic()
        self._until |= {ticket: now + letter.seconds for ticket, letter in zip(tickets, letters, strict=True)}
        return tickets

    def take(self, ticket: Ticket) -> Answer | None:
        """What has become of a letter, once; None while it is under way."""
        return self._come.pop(ticket, None)

    def forget(self, tickets: Collection[Ticket]) -> None:
        """Nobody waits for these any more."""
        for ticket in tickets:
            if self._come.pop(ticket, None) is None and ticket in self._until:
                self._unwanted.add(ticket)

    def collect(self) -> None:
        """Take in what has come, and give up what is of no use any more."""
        for answer in self.transport.pull(list(self._until)) if self._until else []:
            if self._until.pop(answer.ticket, None) is not None:
                self._put(answer)
        now = time.monotonic()
        for ticket in [ticket for ticket, until in self._until.items() if until < now]:
            del self._until[ticket]
            self._put(Answer(ticket, failure=Failure("late", "no answer came in time")))

    def _put(self, answer: Answer) -> None:
        if answer.ticket in self._unwanted:
            self._unwanted.discard(answer.ticket)
        else:
            self._come[answer.ticket] = answer

    def wait(
        self,
        tickets: Collection[Ticket],
        seconds: float,
        *,
        enough: Callable[[list[Answer]], bool] = lambda answers: False,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> dict[Ticket, Answer]:
        """What has come of these until all have, until there is enough, or until the time is over."""
        until, found = time.monotonic() + seconds, dict[Ticket, Answer]()
        while True:
            self.collect()
            for ticket in tickets:
                if (answer := self.take(ticket)) is not None:
                    found[ticket] = answer
            if len(found) == len(tickets) or enough(list(found.values())) or time.monotonic() >= until:
                self.forget([ticket for ticket in tickets if ticket not in found])
                return found
            meanwhile()
            time.sleep(self.poll_seconds)
