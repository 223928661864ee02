"""Asks nodes, and opens what they answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from plures.core.errors import ClientFailed, InvalidMessage, Unheard
from plures.core.losses import LossKind
from plures.core.types import Params
from plures.core.visit import Visit
from plures.deploy.desk import Desk
from plures.deploy.messages import Opened, Order, OrderKind, opened_reply
from plures.deploy.roster import Roster
from plures.deploy.telling import Telling, silent
from plures.deploy.transport import Answer, FailureKind, Letter, Ticket

COUNTED = "plures.counted"
"""Beside what the server knows of a client, the last round of its work that is in the shared part."""
STAYING_OUT = ("data", "state")
"""A node with such a fault says so itself, and is asked again later."""
LOST_AS: dict[FailureKind, LossKind] = {"gone": "gone", "late": "late", "failed": "failed"}


class Asking:
    """The server's word to its nodes."""

    def __init__(self, desk: Desk, roster: Roster, *, deadline: float, tell: Telling = silent) -> None:
        self.desk, self.roster, self.deadline, self.tell = desk, roster, deadline, tell
        self.asked_at = 0.0
        """When letters were last sent."""

    def ask(self, kind: OrderKind, clients: Sequence[int], make: Callable[[int], bytes]) -> dict[int, Opened]:
        """The same of several clients that are there; of those that do not answer, nothing."""
        self.roster.refresh()
        letters, asked = [], []
        for client in clients:
            node = self.roster.node_of(client)
            if node is not None:
                letters.append(Letter(node, make(client), self.deadline))
                asked.append(client)
        tickets = dict(zip(self.send(letters), asked, strict=True))
        found: dict[int, Opened] = {}
        for ticket, answer in self.desk.wait(tickets, self.deadline).items():
            client = tickets[ticket]
            try:
                opened = self.opened(client, answer)
            except ClientFailed as error:
                self.tell(f"{self.roster.seats[client].name} did not answer '{kind}': {error}")
                continue
            found[client] = opened
        return found

    def send(self, letters: Sequence[Letter]) -> list[Ticket]:
        self.asked_at = time.monotonic()
        return self.desk.send(letters)

    def order(self, kind: OrderKind, client: int, round: int, **facts: Any) -> Order:
        run = self.roster.run
        return Order(
            kind=kind,
            experiment=run.experiment,
            run=run.token,
            start=run.start,
            round=round,
            client=client,
            clients=len(self.roster.seats),
            **facts,
        )

    def opened(self, client: int, answer: Answer, visit: Visit | None = None) -> Opened:
        """A reply that is no failure; whoever says that it stays out is put aside."""
        name = self.roster.seats[client].name
        lost = partial(Unheard, client=name, round=0 if visit is None else visit.round)
        if answer.failure is not None:
            kind = LOST_AS[answer.failure.kind]
            # Who has come back since is not to blame for what it was sent before.
            if kind != "late" and self.roster.seats[client].since <= self.asked_at:
                self.roster.put_aside(client, answer.failure.reason)
            raise lost(f"The node {name} is {kind}: {answer.failure.reason}", kind=kind)
        try:
            opened = opened_reply(answer.data)
        except InvalidMessage as error:
            raise lost(f"The node {name} sends what is no reply: {error}", kind="misfit") from error
        reply = opened.reply
        if reply.kind == "failed":
            if reply.where in STAYING_OUT:
                self.roster.put_aside(client, f"its {reply.where} is broken")
            told = f"The node {name} has failed: {reply.error}, in its {reply.where}"
            raise lost(told, kind=reply.loss_kind or "failed")
        if reply.client != client or (visit is not None and reply.round != visit.round):
            raise lost(f"The node {name} answers for another client or round", kind="misfit")
        return opened


def counted_of(state: Params | None) -> int | None:
    return int(state[COUNTED]) if state is not None and COUNTED in state else None
