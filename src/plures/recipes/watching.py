"""How a run tells others how it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from plures.core.context import RoundReport
from plures.evaluate import Summary


class Watcher(Protocol):
    """Is told how a run goes."""

    def started(self, title: str, rounds: int, clients: int, shown: str) -> None:
        """`shown` is the metric to look at, such as personal/test/accuracy."""

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary]) -> None:
        """A whole round; `metrics` are empty unless it was evaluated. To end the run here, raise `Stopped`."""

    def ended(self) -> None: ...


@runtime_checkable
class CountsRuns(Protocol):
    """A watcher that wants to know where in a study a run stands."""

    def next_run(self, number: int, total: int) -> None: ...


@runtime_checkable
class ShowsResumed(Protocol):
    """A watcher that wants to know with which round a run goes on."""

    def resumed(self, rounds_done: int) -> None:
        """After `started`."""


class Silence:
    """The watcher that shows nothing."""

    def started(self, title: str, rounds: int, clients: int, shown: str) -> None: ...

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary]) -> None: ...

    def ended(self) -> None: ...
