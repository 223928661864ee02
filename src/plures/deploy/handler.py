"""A node's side: orders in, replies out. All that leaves a node is made here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import torch

import plures
from plures.core.client import Result
from plures.core.context import Begin, Server
from plures.core.errors import ClientFailed, InvalidInput, InvalidMessage, PluresError, RunFolderError
from plures.core.gather import carried, check_finite
from plures.core.losses import Lost
from plures.core.refusing import check_upload
from plures.core.types import Batch, Later, Params
from plures.core.visit import Visit
from plures.core.wire import Message, Parcel
from plures.data import ClientData
from plures.deploy.described import Member, check_fits, table_of
from plures.deploy.keeping import RunStates
from plures.deploy.messages import Order, Reply, Where, opened_order, sealed
from plures.deploy.scoring import scores_of
from plures.deploy.sides import Side, experiment_token, make_side
from plures.deploy.telling import Telling, silent
from plures.engines.cached import Cached
from plures.engines.sequential import Sequential
from plures.recipes.build import build_wire
from plures.recipes.experiment import Experiment
from plures.recipes.threads import one_thread
from plures.wire import decode
from plures.wire.message import TENSOR_BYTES, memory_of

Read = Callable[[], ClientData]


class Numbered(NamedTuple):
    """Which client of how many this node is, as the server has told."""

    client: int
    clients: int


class Handler:
    """Does what the server asks of one client, from the node's own experiment file, examples and state."""

    def __init__(self, experiment: Experiment, read: Read, states: Path, name: str, tell: Telling = silent) -> None:
        self.experiment, self.name, self.states, self.tell = experiment, name, states, tell
        self.table, self.token = table_of(experiment), experiment_token(experiment)
        self._read = read
        self._data: ClientData | None = None
        self._side: tuple[Numbered, Side] | None = None

    def handle(self, letter: bytes) -> bytes:
        """The reply to whatever has come; an error is told by its type alone."""
        order: Order | None = None
        try:
            order, body = opened_order(letter)
            with one_thread():
                return self._answer(order, letter, body)
        except Exception as error:  # noqa: BLE001 - whatever it is, the server must hear no text of it
            self.tell(f"{type(error).__name__}: {error}")
            return sealed(failed(order, error))

    def _answer(self, order: Order, letter: bytes, body: memoryview) -> bytes:
        if order.kind == "hello":
            return sealed(self._here(order))
        if order.experiment != self.token:
            raise InvalidMessage("The server's experiment is another than this node's file: they must say the same.")
        states = RunStates(self.states, order.run)
        if order.kind == "train":
            return self._trained(order, letter, body, states)
        side = self.side(order)
        server = Server(round=order.round, shared=shared_in(side, body), optimizer={})
        state = states.read(order.counted)
        if order.kind == "evaluate":
            scores = scores_of(side, server, order, state)
            return sealed(Reply.to(order, "scored", scores=scores))
        states.finish(server.shared, {name: getattr(order, name) for name in ("round", "client", "clients", "counted")})
        return sealed(Reply.to(order, "finished"))

    def _here(self, order: Order) -> Reply:
        """Who this is and whether it can take part; sizes, and no examples."""
        facts = {"name": self.name, "experiment": self.token, "version": plures.__version__}
        try:
            data = self.data(again=True)
            RunStates(self.states, order.run).last()
        except (PluresError, OSError) as error:
            self.tell(f"This node stays out: {error}")
            return Reply.to(order, "here", **facts, broken=where_of(error))
        sizes = {split: batch.num_examples for split, batch in data.splits.items()}
        return Reply.to(order, "here", **facts, examples=sizes, classes=len(data.classes))

    def _trained(self, order: Order, letter: bytes, body: memoryview, states: RunStates) -> bytes:
        if (answer := states.answered(letter)) is not None:
            return answer
        if states.is_past(order.when):
            raise InvalidMessage("The order is older than one that was done already.")
        side = self.side(order)
        visit = self._visit(side, order, body, states.read(order.counted))
        result = worked(side, visit)
        if side.program.method.stateful and result.state:
            states.keep(order.round, result.state, order.counted)
        reply = sealed(
            Reply.to(
                order,
                "trained",
                losses={phase: float(loss) for phase, loss in result.losses.items()},
                passes=float(result.passes),
                forward_passes=float(result.forward_passes),
                whole_passes=float(result.whole_passes),
                searched=list(result.searched),
                used=dict(result.used),
                seconds=dict(result.seconds),
            ),
            result.up.data,
        )
        states.note(order.when, letter, reply)
        return reply

    def _visit(self, side: Side, order: Order, body: memoryview, kept: Params | None) -> Visit:
        """What the client finds, as `make_visit` has it in one process; the download has come by the wire."""
        program, client = side.program, order.client
        received = shared_in(side, body)
        binding, begin = program.binding(client), Begin(program=program, client=client, shared=received)
        kept = kept if program.method.stateful else None
        return Visit(
            client=client,
            round=order.round,
            seed=program.seed,
            data=cast(Batch, Later(partial(lambda: binding.task.place(side.federation.client(client).train)))),
            facts=order.facts_given(),
            received=received,
            state=begin() if kept is None else kept,
            begin=begin,
            capacity=program.capacity(client),
            network=binding.network,
            rounds=order.rounds,
            name=self.name,
            statistics=binding.statistics,
        )

    def side(self, order: Order) -> Side:
        """The program for this client among so many, made once."""
        numbered = Numbered(order.client, order.clients)
        if self._side is None or self._side[0] != numbered:
            if not order.client < order.clients:
                raise InvalidMessage(f"The order is for client {order.client} of {order.clients}: there is none.")
            data = self.data()
            check_fits(data, self.table, order.client)
            names = self.table.clients
            known = names if isinstance(names, list) else []
            if known and (len(known) != order.clients or known[order.client] != self.name):
                raise InvalidMessage("The server takes this node for another one of the experiment.")
            members = [Member(name=str(number)) for number in range(order.clients)]
            members[order.client] = Member(name=self.name, examples=data.train.num_examples)
            wire = replace(build_wire(self.experiment), keeps=True)
            self._side = numbered, make_side(self.experiment, members, wire, {order.client: data})
        return self._side[1]

    def data(self, *, again: bool = False) -> ClientData:
        """The node's examples, checked; read again when the node presents itself."""
        if self._data is None or again:
            data = self._read()
            check_fits(data, self.table)
            if self._data is not None and not same(self._data, data):
                self._side = None
            self._data = data
        return self._data


def shared_in(side: Side, body: memoryview) -> Params:
    """What the server has sent: shared names in their shapes, and numbers alone."""
    if not len(body):
        return {}
    like = side.program.initial_shared()
    whole = memory_of(Message(Parcel(like, dict(like))))
    message = decode(body, most_bytes=whole + 3 * TENSOR_BYTES * (len(like) + 1))
    received = message.parcel.values | message.exact
    for name, value in received.items():
        if name not in like or value.shape != like[name].shape or value.dtype != like[name].dtype:
            raise InvalidMessage(f"The server sends '{name}', which is not shared, or not in that form.")
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InvalidMessage(f"The server sends '{name}' with numbers that are not finite.")
    return {name: value.to(side.program.device) for name, value in received.items()}


def same(one: ClientData, other: ClientData) -> bool:
    return all(
        torch.equal(mine, theirs)
        for split in one.splits
        for mine, theirs in zip(one.splits[split], other.splits[split], strict=True)
    )


def worked(side: Side, visit: Visit) -> Result:
    """One visit's work, checked here as the server will check it, and put into bytes."""
    engine = Sequential() if side.experiment.engine == "sequential" else Cached()
    (result,) = engine.run(side.program, [visit])
    if isinstance(result, Lost):
        raise result.error
    check_upload(result, visit, visit.received, side.program.binding(visit.client).parts)
    check_finite(result, visit)
    return carried(side.program, visit, result)


def where_of(error: Exception) -> Where:
    if isinstance(error, InvalidMessage):
        return "order"
    if isinstance(error, ClientFailed):
        return "work"
    if isinstance(error, RunFolderError):
        return "state"
    return "data" if isinstance(error, InvalidInput | OSError) else "work"


def failed(order: Order | None, error: Exception) -> Reply:
    """What the server may know of an error: its type, and what it was about; never its text."""
    kind = error.kind if isinstance(error, ClientFailed) else "failed"
    return Reply.to(order, "failed", error=type(error).__name__[:80], where=where_of(error), loss_kind=kind)
