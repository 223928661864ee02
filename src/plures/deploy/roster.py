"""Who is who: which node is which client, who is there now, and who is put aside."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import plures
from plures.core.errors import InvalidMessage, RunFolderError
from plures.deploy.described import Member
from plures.deploy.desk import Desk
from plures.deploy.messages import Order, Reply, opened_reply, sealed
from plures.deploy.telling import Telling, silent
from plures.deploy.transport import Answer, Letter, Ticket

HELLO_SECONDS = 60.0
"""For a node to say who it is."""
AGAIN_SECONDS = 5.0
"""Between two questions to a node that could not be seated."""


class Run(NamedTuple):
    """What orders of this run have in common."""

    experiment: str
    token: str
    start: int


@dataclass(kw_only=True)
class Seat:
    """A client, and the node that speaks for it, if it is there."""

    name: str
    node: int | None = None
    owner: int | None = None
    """The node that first had the name; with keys, nobody else may."""
    examples: dict[str, int] = field(default_factory=dict)
    classes: int | None = None
    since: float = 0.0
    """When it was last seated."""
    why: str = "has not come yet"
    """Why nobody is there."""


class Roster:
    """Seats nodes as they come; the clients of a run are those that were there when it began."""

    def __init__(
        self,
        desk: Desk,
        run: Run,
        clients: Iterable[str] | int,
        *,
        keyed: bool,
        tell: Telling = silent,
    ) -> None:
        self.desk, self.run, self.keyed, self.tell = desk, run, keyed, tell
        self.wanted = clients if isinstance(clients, int) else None
        """How many there will be, while names are not known."""
        self.seats: list[Seat] = [] if isinstance(clients, int) else [Seat(name=name) for name in clients]
        self.is_closed = not isinstance(clients, int)
        self._asked: dict[Ticket, int] = {}
        self._again: dict[int, float] = {}
        self._told: dict[int, str] = {}
        self.newcomers: set[int] = set()
        """Nodes that want the shared part, and no seat."""

    def resume(self, members: Iterable[Mapping[str, object]]) -> None:
        """The clients of a run that goes on, as it was written down."""
        try:
            self.seats = [Seat(**member) for member in members]  # type: ignore[arg-type]
        except TypeError as error:
            raise RunFolderError("The clients of the deployment cannot be read. Bring its file back.") from error
        self.is_closed = True

    def told(self) -> list[dict[str, object]]:
        """For the folder of the run."""
        return [
            {"name": seat.name, "owner": seat.owner, "examples": seat.examples, "classes": seat.classes}
            for seat in self.seats
        ]

    @property
    def is_complete(self) -> bool:
        """Whether everybody's sizes are known: before that no round can begin."""
        return self.is_closed and all(seat.examples for seat in self.seats)

    @property
    def members(self) -> list[Member]:
        return [Member(name=seat.name, examples=seat.examples["train"]) for seat in self.seats]

    def node_of(self, client: int) -> int | None:
        return self.seats[client].node

    def present(self) -> list[int]:
        """Clients whose nodes are there."""
        return [client for client, seat in enumerate(self.seats) if seat.node is not None]

    def put_aside(self, client: int, why: str) -> None:
        """Until its node answers again, nobody counts on a client."""
        seat = self.seats[client]
        if seat.node is not None:
            self._again[seat.node] = time.monotonic() + AGAIN_SECONDS
            self.tell(f"{seat.name} is put aside: {why}")
        seat.node, seat.why = None, why

    def refresh(self) -> None:
        """See who is there, ask those that are new who they are, and seat those that have said so."""
        self.desk.collect()
        for ticket, node in list(self._asked.items()):
            if (answer := self.desk.take(ticket)) is not None:
                del self._asked[ticket]
                self._heard(node, answer)
        there = set(self.desk.transport.nodes())
        self.newcomers &= there
        for client, seat in enumerate(self.seats):
            if seat.node is not None and seat.node not in there:
                self.put_aside(client, "went away")
        now = time.monotonic()
        known = {seat.node for seat in self.seats} | set(self._asked.values()) | self.newcomers
        new = [node for node in sorted(there) if node not in known and self._again.get(node, 0.0) <= now]
        letters = [Letter(node, sealed(self._hello()), HELLO_SECONDS) for node in new]
        self._asked |= dict(zip(self.desk.send(letters), new, strict=True))
        self._again = {node: when for node, when in self._again.items() if node in there}

    def _hello(self) -> Order:
        return Order(kind="hello", experiment=self.run.experiment, run=self.run.token, start=self.run.start, round=0)

    def _heard(self, node: int, answer: Answer) -> None:
        self._again[node] = time.monotonic() + AGAIN_SECONDS
        if answer.failure is not None:
            return
        try:
            reply = opened_reply(answer.data).reply
        except InvalidMessage as error:
            self._refuse(node, str(error))
            return
        if reply.kind == "here" and reply.newcomer and reply.experiment == self.run.experiment:
            self.newcomers.add(node)
            return
        why = self._why_not(node, reply)
        if why is not None:
            self._refuse(node, why)
            return
        self._seat(node, reply)

    def _why_not(self, node: int, reply: Reply) -> str | None:
        if reply.kind != "here" or reply.name is None or reply.run != self.run.token:
            return f"it does not say who it is ({reply.error or reply.kind})"
        if reply.experiment != self.run.experiment:
            return f"{reply.name} has another experiment file"
        if reply.version != plures.__version__:
            return f"{reply.name} has Plures {reply.version}, and the server {plures.__version__}"
        if reply.broken is not None:
            return f"{reply.name} says that its {reply.broken} is broken"
        if reply.examples.get("train", 0) < 1:
            return f"{reply.name} has no examples to train on"
        seat = next((seat for seat in self.seats if seat.name == reply.name), None)
        if seat is None:
            return f"{reply.name} is not one of the clients" if self.is_closed else None
        if self.keyed and seat.owner not in (None, node):
            return f"{reply.name} is the name of a node with another key"
        if seat.node not in (None, node):
            return f"{reply.name} is there already"
        if seat.examples and seat.examples != reply.examples:
            return f"{reply.name} has other examples than when the run began ({seat.examples})"
        return None

    def _refuse(self, node: int, why: str) -> None:
        if self._told.get(node) != why:
            self._told[node] = why
            self.tell(f"A node is not let in: {why}.")

    def _seat(self, node: int, reply: Reply) -> None:
        assert reply.name is not None
        seat = next((seat for seat in self.seats if seat.name == reply.name), None)
        if seat is None:
            seat = Seat(name=reply.name)
            self.seats.append(seat)
        was_there = bool(seat.examples)
        seat.node, seat.owner, seat.why = node, seat.owner if self.keyed and seat.owner else node, ""
        seat.since = time.monotonic()
        seat.examples, seat.classes = dict(reply.examples), reply.classes
        self._told.pop(node, None)
        self.tell(f"{seat.name} is {'back' if was_there else 'here'} ({seat.examples['train']} examples)")
        if not self.is_closed and self.wanted is not None and len(self.seats) >= self.wanted:
            self.close()

    def close(self) -> None:
        """Those that are here are the clients; numbers go by names, whoever came first."""
        assert self.wanted is not None
        self.seats = sorted(self.seats[: self.wanted], key=lambda seat: seat.name)
        self.is_closed = True
