"""What a worker process does: take a visit, do the client's work, give back what came of it."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import torch

from plures.core.client import run_client
from plures.core.context import Begin, train_data
from plures.core.errors import PluresError
from plures.core.losses import Lost, attempted
from plures.core.program import Program
from plures.core.roles import Population
from plures.core.types import Batch, Facts, Later, Params
from plures.core.visit import Visit
from plures.core.wire import Sent
from plures.engines.arena import Arena, read, written
from plures.engines.cached import cached_steps
from plures.engines.memory import keep_freed_memory

SLOTS = 2
"""Visits that a worker may have at a time: one to work on, and one to go on with."""


class Task(NamedTuple):
    """A visit without what a worker has already: its program and the clients' data."""

    client: int
    round: int
    facts: Facts
    received: Params
    state: Params
    shared: Params
    capacity: float
    down: Sent
    rounds: int | None
    name: str
    kills_worker: bool

    @classmethod
    def of(cls, visit: Visit) -> Task:
        return cls(
            visit.client,
            visit.round,
            visit.facts,
            dict(visit.received),
            dict(visit.state),
            dict(getattr(visit.begin, "shared", {})),
            visit.capacity,
            visit.down,
            visit.rounds,
            visit.name,
            visit.kills_worker,
        )

    def visit(self, program: Program, population: Population) -> Visit:
        binding = program.binding(self.client)
        return Visit(
            client=self.client,
            round=self.round,
            seed=program.seed,
            data=cast(Batch, Later(partial(train_data, program, population, self.client))),
            facts=self.facts,
            received=self.received,
            state=self.state,
            begin=Begin(program=program, client=self.client, shared=self.shared),
            capacity=self.capacity,
            down=self.down,
            network=binding.network,
            rounds=self.rounds,
            name=self.name,
            statistics=binding.statistics,
        )


@dataclass(frozen=True)
class Failure:
    """An error that a worker met, for the process that asked."""

    kind: type[BaseException]
    text: str
    facts: dict[str, Any]
    where: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        return cls(type(error), str(error), dict(vars(error)), "".join(traceback.format_exception(error)))

    def error(self) -> BaseException:
        """The same error again; its place in the worker is its cause."""
        again = self.kind.__new__(self.kind)
        BaseException.__init__(again, self.text)
        vars(again).update(self.facts)
        again.__cause__ = RuntimeError(self.where)
        return again


def work(
    program: Program,
    population: Population,
    works: tuple[Callable[[Any], Any], ...],
    pipe: Any,
    inbox: list[Arena],
    outbox: list[Arena],
    weights: Arena,
) -> None:
    """Until nobody asks any more. Interrupts are for the process that asked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    keep_freed_memory()
    number = 0
    while True:
        try:
            text = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        asked, task = read(text, inbox[number % SLOTS], weights, copy=False)
        if isinstance(task, Task) and task.kills_worker:
            os.kill(os.getpid(), signal.SIGKILL)
        work = None if asked is None else works[asked]
        pipe.send_bytes(written(answered(program, population, work, task), outbox[number % SLOTS]))
        number += 1


def answered(
    program: Program, population: Population, work: Callable[[Any], Any] | None, task: Task | NamedTuple
) -> Any:
    """What comes of a client's own work, or of some other work on a client or a group of them."""
    try:
        visit = task.visit(program, population) if isinstance(task, Task) else task
        if work is not None or not isinstance(visit, Visit):
            assert work is not None
            return work(visit)
        binding = program.binding(visit.client)
        found = attempted(visit, partial(run_client, program.method, binding, visit, stepping=cached_steps))
        if isinstance(found, Lost):
            return Failure.of(found.error)
        return found if program.shows_trained else found._replace(trained={})
    except (
        PluresError,
        RuntimeError,
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        AttributeError,
        OSError,
    ) as error:
        return Failure.of(error)
