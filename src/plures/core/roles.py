"""What a round needs of its surroundings: clients with data, a store, an engine, and faults made on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from plures.core.client import Result
from plures.core.losses import Lost
from plures.core.program import Program
from plures.core.types import Batch, Params
from plures.core.visit import Visit


class HasTrain(Protocol):
    @property
    def train(self) -> Batch: ...


class Population(Protocol):
    """What the core needs of a federation."""

    @property
    def num_clients(self) -> int: ...

    @property
    def total_examples(self) -> int: ...

    def num_examples(self, client: int) -> int: ...

    def client(self, client: int) -> HasTrain: ...

    def name(self, client: int) -> str: ...


class HasStates(Protocol):
    """Knows what clients keep."""

    def get(self, client: int) -> Params | None: ...


class Store(HasStates, Protocol):
    """Client state between rounds; changed only for the cohort, once per round."""

    def stage(self, round: int, states: Mapping[int, Params]) -> None:
        """What clients will keep, of a round that is under way; nothing of it is in force before the commit."""

    def commit(self, round: int, states: Mapping[int, Params]) -> None:
        """These, and what was staged, are in force."""

    def discard(self) -> None:
        """Forget what was staged: the round will not be."""

    def clients(self) -> Iterator[int]:
        """Clients with a state, in order."""


class Engine(Protocol):
    """Runs clients; results come in the order of the visits, so that sums agree."""

    @property
    def name(self) -> str: ...

    def run(self, program: Program, visits: Iterable[Visit]) -> Iterator[Result | Lost]:
        """The method's own local work; a client that fails is lost, and the others go on."""

    def map(self, work: Callable[[Visit], Any], visits: Iterable[Visit]) -> Iterator[Any]:
        """Any work on clients, for methods with a round of their own."""


@runtime_checkable
class Opens(Protocol):
    """An engine that has something to start before the first round and to end after the last."""

    def open(self, program: Program, population: Population) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class Shares(Protocol):
    """An engine whose `map` does elsewhere what was shared with it before it was opened."""

    def share(self, work: Callable[[Any], Any]) -> None: ...

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Items are visits, or have the shared parameters that they need as `shared`."""


class Faults(Protocol):
    """What goes wrong with clients on purpose; every draw is keyed by the seed, the round and the client."""

    def is_absent(self, seed: int, round: int, client: int) -> bool:
        """Whether a client that is called does not answer."""

    def seconds(self, seed: int, round: int, client: int) -> float:
        """By how much it is slow."""

    def kills_worker(self, seed: int, round: int, client: int) -> bool:
        """Whether the process that does its work dies, once."""

    def after(self, visit: Visit, result: Result) -> Result | Lost:
        """What reaches the server of a client's work."""
