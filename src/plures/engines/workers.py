"""One process per core, one thread each: clients work side by side, and results come in the order of the visits.

Workers are forked when a run begins, so that they have its program and data without a copy. What they are sent and send
back lies in memory that was shared before the fork. A client works alike wherever it does, and nothing is added up
in a worker: one worker or many, the bits are the same.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import Any

from plures.core.client import Result
from plures.core.errors import ClientFailed, InvalidConfig
from plures.core.losses import Lost
from plures.core.program import Program
from plures.core.roles import Population
from plures.core.types import Params, sum_bytes
from plures.core.visit import Visit
from plures.engines.arena import COMMON, Arena, read, written
from plures.engines.cached import Cached, cached_steps
from plures.engines.worker import SLOTS, Failure, Task, work

TRIES = 3
"""A client whose worker dies so often is given up."""
ROOM, LEAST_ROOM = 4, 2**20
"""Of a message: so many times the bytes of a client's parameters, and so many bytes at least; more goes by the pipe."""


@dataclass(kw_only=True)
class Worker:
    """A process, what connects it, and the visits it was given."""

    process: Any
    pipe: Any
    outbox: list[Arena]
    inbox: list[Arena]
    busy: deque[tuple[int, Any]] = field(default_factory=deque)
    sent: int = 0
    received: int = 0


class Workers:
    """Runs a cohort in several processes; where there is but one to be had, in this one."""

    name = "workers"
    stepping = staticmethod(cached_steps)

    def __init__(self, count: int | None = None) -> None:
        self.count = usable_cores() if count is None else count
        if self.count < 1:
            raise InvalidConfig(f"workers = {self.count}: give one or more.")
        self.alone = Cached()
        self.program: Program | None = None
        self.population: Population | None = None
        self.workers: list[Worker] = []
        self.weights = Arena(0)
        self.failures: dict[int, int] = {}
        self.works: list[Callable[[Any], Any]] = []
        """Other work than a method's own that clients may be asked for."""

    def open(self, program: Program, population: Population) -> None:
        """Start the workers; they know the program and the population as they are now."""
        check_forking(program)
        self.program, self.population = program, population
        self.weights = Arena(2 * sum_bytes(program.initial_shared().values()) + LEAST_ROOM)
        self.workers = [self._started() for _ in range(self.count)]

    def close(self) -> None:
        for worker in self.workers:
            worker.pipe.close()
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
        self.workers = []

    def share(self, work: Callable[[Any], Any]) -> None:
        """What is known before the workers start, they can do."""
        if work not in self.works:
            self.works.append(work)

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        if not self.workers or work not in self.works:
            return map(work, items)
        return Round(self, items, self.works.index(work)).results()

    def run(self, program: Program, visits: Iterable[Visit]) -> Iterator[Result | Lost]:
        if not self.workers or program is not self.program:
            yield from self.alone.run(program, visits)
            return
        yield from Round(self, visits).results()

    def _started(self) -> Worker:
        assert self.program is not None
        assert self.population is not None
        values = self.program.binding(0).values.values()
        room = ROOM * sum_bytes(values) + LEAST_ROOM
        boxes = [[Arena(room) for _ in range(SLOTS)] for _ in range(2)]
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        given = (self.program, self.population, tuple(self.works), theirs, *boxes, self.weights)
        process = context.Process(target=work, args=given, daemon=True, name="plures worker")
        process.start()
        theirs.close()
        return Worker(process=process, pipe=ours, outbox=boxes[0], inbox=boxes[1])

    def replaced(self, worker: Worker) -> Worker:
        """A new process in the place of one that died."""
        worker.pipe.close()
        worker.process.join()
        fresh = self._started()
        self.workers[self.workers.index(worker)] = fresh
        return fresh


class Round:
    """One cohort on its way through the workers."""

    def __init__(self, engine: Workers, visits: Iterable[Any], work: int | None = None) -> None:
        self.engine, self.visits, self.work = engine, enumerate(visits), work
        self.finished: dict[int, Any] = {}
        self.shared: Params | None = None
        self.known: dict[int, Any] = {}
        self.following = 0
        """The number of the visit whose result is next to be handed over."""
        self.begun = 0

    def results(self) -> Iterator[Any]:
        try:
            self.hand_out()
            while self.following < self.begun:
                while self.following not in self.finished:
                    self.take_in()
                    self.hand_out()
                result = self.finished.pop(self.following)
                self.following += 1
                self.hand_out()  # the slowest has moved on, and so may the others
                yield result
        except BaseException:
            self.engine.close()  # what is under way belongs to a round that will not be
            raise

    def hand_out(self) -> None:
        """Give every worker something to do and something to go on with, but no worker far ahead of the slowest."""
        for depth in range(SLOTS):
            for worker in self.engine.workers:
                if len(worker.busy) == depth and self.begun - self.following < 8 * len(self.engine.workers):
                    number, visit = next(self.visits, (None, None))
                    if number is None or visit is None:
                        return
                    self.begun += 1
                    self.send(worker, number, visit)

    def send(self, worker: Worker, number: int, visit: Any) -> Worker:
        """Who has the visit now: another worker, if that one has died."""
        self.lay_out(shared_by(visit))
        task = (self.work, Task.of(visit) if isinstance(visit, Visit) else visit)
        arena = worker.outbox[worker.sent % SLOTS]
        text = written(task, arena, self.known)
        worker.busy.append((number, visit))
        worker.sent += 1
        try:
            worker.pipe.send_bytes(text)
        except (BrokenPipeError, OSError):
            return self.again(worker)
        return worker

    def lay_out(self, shared: Params) -> None:
        """The round's shared part goes into memory that all workers see, once."""
        if shared is self.shared:
            return
        assert self.shared is None or not any(worker.busy for worker in self.engine.workers)
        self.shared = shared
        weights = self.engine.weights
        weights.clear()
        self.known = {}
        for value in shared.values():
            place = weights.put(value.detach())
            if place is not None:
                self.known[id(value)] = (COMMON, place)

    def take_in(self) -> None:
        """Wait for whoever is ready first."""
        waiting = [worker for worker in self.engine.workers if worker.busy]
        ready = wait([worker.pipe for worker in waiting])
        for worker in waiting:
            if worker.pipe in ready:
                self.receive(worker)

    def receive(self, worker: Worker) -> None:
        try:
            text = worker.pipe.recv_bytes()
        except (EOFError, ConnectionResetError, OSError):
            self.again(worker)
            return
        answer = read(text, worker.inbox[worker.received % SLOTS])
        worker.received += 1
        number, item = worker.busy.popleft()
        if isinstance(answer, Failure):
            self.fail(number, item, answer.error())
        else:
            self.engine.failures.pop(whose(item)[0], None)
            self.finished[number] = answer

    def fail(self, number: int, item: Any, error: BaseException) -> None:
        """In a round, a client that fails is lost and the others go on; everywhere else an error is the end."""
        if self.work is not None or not isinstance(error, ClientFailed):
            raise error
        self.finished[number] = Lost(item.client, error)

    def again(self, worker: Worker) -> Worker:
        """What a dead worker was doing is done by a new one; a client that workers die of is given up."""
        lost = list(worker.busy)
        number, first = lost[0]
        lost[0] = (number, unharmed(first))
        client, name = whose(first)
        tries = self.engine.failures[client] = self.engine.failures.get(client, 0) + 1
        fresh = self.engine.replaced(worker)
        if tries >= TRIES:
            lost = lost[1:]
            self.engine.failures[client] = 0
            self.fail(number, first, given_up(tries, name, first.round, "work" if self.work is None else "evaluation"))
        for number, visit in lost:
            fresh = self.send(fresh, number, visit)
        return fresh


def given_up(tries: int, name: str, round: int, phase: str) -> ClientFailed:
    return ClientFailed(
        f"A worker died {tries} times with this client",
        client=name,
        round=round,
        phase=phase,
        remedy="Is there memory enough? Try engine = 'cached', which works in one process.",
    )


def unharmed(item: Any) -> Any:
    """A fault that kills a worker kills one, and not the next as well."""
    return replace(item, kills_worker=False) if isinstance(item, Visit) and item.kills_worker else item


def shared_by(item: Any) -> Params:
    """The shared parameters that a visit, or a group of clients, is about."""
    shared: Params = getattr(item.begin, "shared", {}) if isinstance(item, Visit) else item.shared
    return shared


def whose(item: Any) -> tuple[int, str]:
    """Client and name; of a group, of its first client to its last."""
    if isinstance(item, Visit):
        return item.client, item.name or str(item.client)
    return item.clients[0], f"{item.clients[0]} to {item.clients[-1]}"


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_fork(program: Program) -> bool:
    """Whether work can be handed to processes of their own."""
    return program.device.type == "cpu" and "fork" in multiprocessing.get_all_start_methods()


def check_forking(program: Program) -> None:
    if not can_fork(program):
        raise InvalidConfig(
            f"engine 'workers' needs the CPU, not {program.device}, and an operating system that can fork. Use "
            "engine = 'cached'."
        )
