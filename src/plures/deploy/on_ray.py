"""A transport on Ray: every node is an actor, on this machine or on others of a Ray cluster. Needs the extra `ray`.

What travels are bytes, which nobody can write into: tensors in Ray's store could be changed by whoever reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from plures.deploy.transport import Answer, Failure, Letter, Ticket

Handle = Callable[[bytes], bytes]


class OnRay:
    """Nodes by number, each made in its own process by a function that gives its `Handler.handle`.

    An actor that dies is started again by Ray, with what it has kept on its disk; the letter that it had is lost.
    """

    def __init__(
        self, nodes: Mapping[int, Callable[[], Handle]], *, resources: Mapping[str, float] | None = None
    ) -> None:
        options: dict[str, Any] = {"max_restarts": -1, "max_task_retries": 0, **(resources or {"num_cpus": 0})}
        make = ray.remote(_Actor).options(**options)
        self.actors = {node: make.remote(handler) for node, handler in nodes.items()}
        self._under_way: dict[Ticket, Any] = {}

    def nodes(self) -> Collection[int]:
        return list(self.actors)

    def push(self, letters: Sequence[Letter]) -> list[Ticket]:
        tickets = []
        for letter in letters:
            reference = self.actors[letter.node].handle.remote(letter.data)
            ticket = reference.hex()
            self._under_way[ticket] = reference
            tickets.append(ticket)
        return tickets

    def pull(self, tickets: Collection[Ticket]) -> list[Answer]:
        wanted = {self._under_way[ticket]: ticket for ticket in tickets if ticket in self._under_way}
        if not wanted:
            return []
        ready, _ = ray.wait(list(wanted), num_returns=len(wanted), timeout=0)
        return [self._answer(wanted[reference], self._under_way.pop(wanted[reference])) for reference in ready]

    def _answer(self, ticket: Ticket, reference: Any) -> Answer:
        try:
            return Answer(ticket, ray.get(reference))
        except RayActorError as error:
            return Answer(ticket, failure=Failure("gone", f"its actor died ({type(error).__name__})"))
        except RayError as error:
            return Answer(ticket, failure=Failure("failed", f"its actor failed ({type(error).__name__})"))

    def close(self, trouble: BaseException | None = None) -> None:
        """End the actors; the cluster belongs to whoever has started it."""
        for actor in self.actors.values():
            ray.kill(actor)


class _Actor:
    """A node's process."""

    def __init__(self, make: Callable[[], Handle]) -> None:
        self._handle = make()

    def handle(self, letter: bytes) -> bytes:
        return self._handle(letter)
