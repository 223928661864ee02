"""A newcomer's side: it says that it wants the shared part, and keeps what it is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from safetensors.torch import save

import plures
from plures.core.errors import InvalidMessage
from plures.core.types import Params
from plures.deploy.described import Member, num_clients, table_of
from plures.deploy.handler import failed, shared_in
from plures.deploy.messages import Order, Reply, opened_order, sealed
from plures.deploy.sides import experiment_token, make_side
from plures.deploy.telling import Telling, silent
from plures.recipes.experiment import Experiment
from plures.report.writing import replace_whole
from plures.wire import Codec


class Newcomer:
    """Answers as a node until it has been given the shared part."""

    def __init__(
        self, experiment: Experiment, out: Path, name: str, *, done: Callable[[], None], tell: Telling = silent
    ) -> None:
        self.out, self.name, self.done, self.tell = out, name, done, tell
        self.token = experiment_token(experiment)
        members = [Member(name=str(number)) for number in range(num_clients(table_of(experiment)))]
        self.side = make_side(experiment, members, Codec())

    def handle(self, letter: bytes) -> bytes:
        order: Order | None = None
        try:
            order, body = opened_order(letter)
            if order.kind == "hello":
                facts = {"name": self.name, "experiment": self.token, "version": plures.__version__}
                return sealed(Reply.to(order, "here", **facts, newcomer=True))
            if order.kind != "give" or order.experiment != self.token:
                raise InvalidMessage("A newcomer takes the shared part of its own experiment, and does nothing else.")
            self.keep(shared_in(self.side, body), order.round)
            return sealed(Reply.to(order, "taken"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the server must hear no text of it
            self.tell(f"{type(error).__name__}: {error}")
            return sealed(failed(order, error))

    def keep(self, shared: Params, round: int) -> None:
        values = {name: value.cpu().contiguous() for name, value in shared.items()}
        replace_whole(self.out, save(values, {"round": str(round), "experiment": self.token}))
        self.tell(f"{self.out}: the shared part of round {round}")
        self.done()
