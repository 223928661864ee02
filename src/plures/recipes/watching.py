"""How a run tells others how it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from plures.core.context import RoundReport
from plures.evaluate import ModelKind, Summary


class Watcher(Protocol):
    """Is told how a run goes."""

    def started(self, title: str, rounds: int, clients: int, headline: ModelKind) -> None: ...

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary]) -> None: ...

    def ended(self) -> None: ...


class Silence:
    """The watcher that shows nothing."""

    def started(self, title: str, rounds: int, clients: int, headline: ModelKind) -> None: ...

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary]) -> None: ...

    def ended(self) -> None: ...
