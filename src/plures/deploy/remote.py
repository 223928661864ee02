"""The engine whose clients are elsewhere: a round's orders go out, and what comes back is what any engine gives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

import torch

from plures.core.client import Result
from plures.core.context import Begin
from plures.core.errors import ClientFailed, InvalidConfig, InvalidMessage, Unheard
from plures.core.losses import LossKind, Lost, Tolerance
from plures.core.program import Program
from plures.core.types import Params, is_known, stays
from plures.core.visit import Visit
from plures.core.wire import Message, Parcel, Sent, count_values
from plures.deploy.asking import COUNTED, Asking, counted_of
from plures.deploy.giving import give
from plures.deploy.looking import RemoteEvaluator
from plures.deploy.messages import Opened, sealed
from plures.deploy.transport import Answer, Letter, Ticket
from plures.evaluate import Evaluator
from plures.wire import decode
from plures.wire.message import TENSOR_BYTES, memory_of


class Remote:
    """Runs the cohort on nodes; whoever is not heard of in time is lost."""

    name = "deployed"

    def __init__(self, asking: Asking, tolerance: Tolerance, *, patience: float) -> None:
        self.asking, self.desk, self.roster, self.tell = asking, asking.desk, asking.roster, asking.tell
        self.tolerance, self.patience = tolerance, patience
        """Seconds to wait for nodes where too few are there."""

    @property
    def deadline(self) -> float:
        return self.tolerance.deadline or self.asking.deadline

    def run(self, program: Program, visits: Iterable[Visit]) -> Iterator[Result | Lost]:
        """All orders go out before the first answer is taken in; results come in the order of the cohort."""
        visits = list(visits)
        self.wait_for_nodes([visit.client for visit in visits], self.tolerance.least(wanted_of(visits)))
        if visits and isinstance(visits[0].begin, Begin):
            give(self.asking, visits[0].begin.shared, visits[0].round - 1)
        tickets = self._sent(program, visits)
        answers = first_of(self._awaited(tickets, wanted_of(visits)), wanted_of(visits))
        for visit in visits:
            yield self._outcome(program, visit, tickets.get(visit.client), answers)

    def map(self, work: Callable[[Visit], Any], visits: Iterable[Visit]) -> NoReturn:
        raise InvalidConfig(
            "Nodes do the local work of a method, and no other. Choose a method without a round of its own."
        )

    def evaluator(self, of: Evaluator) -> Evaluator:
        """Nodes score their models themselves."""
        return RemoteEvaluator(of, self.asking)

    def wait_for_nodes(self, clients: Sequence[int], least: int) -> None:
        """Until enough of these are there, or patience is at its end; then the round finds out itself."""
        until, said = time.monotonic() + self.patience, False
        while True:
            self.roster.refresh()
            there = [client for client in clients if self.roster.node_of(client) is not None]
            if len(there) >= min(least, len(clients)) or time.monotonic() >= until:
                return
            if not said:
                said = True
                away = [self.roster.seats[client].name for client in clients if client not in there]
                self.tell(f"Waiting for {', '.join(away[:10])}{' and others' if len(away) > 10 else ''}")
            time.sleep(self.desk.poll_seconds)

    def _sent(self, program: Program, visits: Sequence[Visit]) -> dict[int, Ticket]:
        """Tickets by client; who is not there has none."""
        there = [(visit, self.roster.node_of(visit.client)) for visit in visits]
        letters = [
            Letter(node, self._letter(program, visit), self.deadline) for visit, node in there if node is not None
        ]
        clients = [visit.client for visit, node in there if node is not None]
        return dict(zip(clients, self.asking.send(letters), strict=True))

    def _letter(self, program: Program, visit: Visit) -> bytes:
        order = self.asking.order(
            "train",
            visit.client,
            visit.round,
            rounds=visit.rounds,
            facts=asdict(visit.facts),
            counted=counted_of(visit.state),
        )
        return sealed(order, visit.down.data)

    def _awaited(self, tickets: dict[int, Ticket], wanted: int) -> dict[Ticket, Answer]:
        def enough(answers: list[Answer]) -> bool:
            return len(answers) >= wanted and sum(answer.failure is None for answer in answers) >= wanted

        return self.desk.wait(tickets.values(), self.deadline, enough=enough, meanwhile=self.roster.refresh)

    def _outcome(
        self, program: Program, visit: Visit, ticket: Ticket | None, answers: dict[Ticket, Answer]
    ) -> Result | Lost:
        try:
            if ticket is None:
                raise unheard(visit, "absent", f"it is not there ({self.roster.seats[visit.client].why})")
            if ticket not in answers:
                enough = sum(answer.failure is None for answer in answers.values()) >= visit.facts.cohort_clients
                why = "others were quicker" if enough else f"it has not answered within {self.deadline:g} s"
                raise unheard(visit, "surplus" if enough else "late", why)
            opened = self.asking.opened(visit.client, answers[ticket], visit)
            return received(program, visit, opened)
        except ClientFailed as error:
            return Lost(visit.client, error)


def wanted_of(visits: Sequence[Visit]) -> int:
    """How many are to arrive, where more were called."""
    return min(len(visits), visits[0].facts.cohort_clients) if visits else 0


def first_of(answers: dict[Ticket, Answer], wanted: int) -> dict[Ticket, Answer]:
    """As many as are wanted, of those that came first, and all that failed before."""
    good = [ticket for ticket, answer in answers.items() if answer.failure is None]
    surplus = set(good[wanted:])
    return {ticket: answer for ticket, answer in answers.items() if ticket not in surplus}


def unheard(visit: Visit, kind: LossKind, what: str) -> Unheard:
    return Unheard(f"The node {visit.name} is lost: {what}", client=visit.name, round=visit.round, kind=kind)


def received(program: Program, visit: Visit, opened: Opened) -> Result:
    """A node's reply as the result of a visit: what it kept to itself is not in it."""
    reply, binding = opened.reply, program.binding(visit.client)
    message = read_upload(program, visit, opened.body)
    parts = binding.parts
    known = {name: value for name, value in message.exact.items() if is_known(parts.get(name, ""))}
    state = known_to_server(program, visit) | known
    if program.method.stateful and any(stays(part) for part in parts.values()):
        state[COUNTED] = torch.tensor(visit.round)
    return Result(
        client=visit.client,
        state=state,
        upload=message.parcel,
        buffers={name: value for name, value in message.exact.items() if name not in known},
        losses={phase: torch.tensor(loss, dtype=torch.float64) for phase, loss in reply.losses.items()},
        passes=reply.passes,
        trained={},
        known=known,
        used=dict(reply.used),
        seconds=dict(reply.seconds),
        up=Sent(len(opened.body), count_values(message)),
        forward_passes=reply.forward_passes,
        whole_passes=reply.whole_passes,
        searched=tuple(reply.searched),
    )


def known_to_server(program: Program, visit: Visit) -> Params:
    """Of what a client keeps, what the server is told of."""
    parts = program.binding(visit.client).parts
    return {name: value for name, value in visit.state.items() if is_known(parts.get(name, ""))}


def read_upload(program: Program, visit: Visit, body: memoryview) -> Message:
    if not len(body):
        return Message(Parcel({}))
    like = program.initial_shared() | known_to_server(program, visit)
    whole = memory_of(Message(Parcel(like, dict(like))))
    try:
        message = decode(body, most_bytes=whole + 3 * TENSOR_BYTES * (len(like) + 1))
    except InvalidMessage as error:
        raise Unheard(
            f"The upload cannot be read: {error}", client=visit.name, round=visit.round, kind="misfit"
        ) from error
    device = program.device
    values, held = message.parcel
    return Message(
        Parcel(
            {name: value.to(device) for name, value in values.items()},
            None if held is None else {name: value.to(device) for name, value in held.items()},
        ),
        {name: value.to(device) for name, value in message.exact.items()},
    )
