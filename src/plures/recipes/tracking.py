"""Trackers: others that are told the numbers of a run as it goes, such as TensorBoard."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from plures.core.errors import InvalidConfig, PluresError, did_you_mean
from plures.recipes.results import RunResult, Status

TRACKERS = {
    "tensorboard": "plures.recipes.trackers.tensorboard:TensorBoard",
    "wandb": "plures.recipes.trackers.wandb:Wandb",
    "mlflow": "plures.recipes.trackers.mlflow:Mlflow",
}
"""Where each is; its file is imported only when it is asked for."""
SENT = ("bytes_down", "bytes_up")


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker is told before round 1."""

    title: str
    facts: Mapping[str, Any]
    """Method, seed, rounds, clients, cohort, engine."""
    configuration: str | None
    """The resolved experiment file, if there is one."""
    folder: Path | None
    rounds_done: int = 0
    """Of a run that goes on from a checkpoint: what a tracker was told of later rounds comes again."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Of a run that goes on: under which key each tracker, by its name, knew it."""

    @property
    def name(self) -> str:
        return self.title if self.folder is None else str(self.folder)


class Tracker(Protocol):
    """Is told numbers over all clients, never a client's data or parameters."""

    @property
    def name(self) -> str: ...

    def started(self, run: TrackedRun) -> None:
        """Before round 1; an error here ends the run before it begins."""

    def round_done(self, round: int, numbers: Mapping[str, float]) -> None:
        """Numbers by name, such as personal/test/accuracy, loss/train shared, bytes and seconds."""

    def ended(self, status: Status, numbers: Mapping[str, float]) -> None:
        """However the run ended; the numbers are those of the validation-selected round, if one was selected."""


@runtime_checkable
class HasKey(Protocol):
    """A tracker that goes on with a run of its own if it is given the key again."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str: ...


@dataclass(kw_only=True)
class Tracking:
    """The trackers of a run; one that fails on the way is warned about once and left out, and the run goes on."""

    trackers: Sequence[Tracker]
    sent: int = 0
    """Bytes, of all rounds so far."""

    def started(self, run: TrackedRun) -> None:
        for number, tracker in enumerate(self.trackers):
            try:
                tracker.started(run)
            except PluresError:
                self._close(number)
                raise
            except Exception as error:  # whatever a library of others raises
                self._close(number)
                raise InvalidConfig(f"The tracker {tracker.name} cannot start: {first_line(error)}") from error

    def keys(self) -> dict[str, str]:
        """Of the trackers that know a run by a key of their own, for a run that may have to go on later."""
        return {tracker.name: tracker.key for tracker in self.trackers if isinstance(tracker, HasKey)}

    def _close(self, number: int) -> None:
        self.trackers = self.trackers[:number]
        self.ended("failed", None)

    def round_done(self, line: Mapping[str, Any]) -> None:
        """A line of rounds.jsonl."""
        self.sent += sum(line[key] for key in SENT)
        numbers = numbers_of(line) | {"bytes": float(self.sent)}
        for tracker in list(self.trackers):
            self._tell(tracker, f"in round {line['round']}", tracker.round_done, line["round"], numbers)

    def ended(self, status: Status, result: RunResult | None) -> None:
        for tracker in list(self.trackers):
            self._tell(tracker, "at the end", tracker.ended, status, last_numbers(result))

    def _tell(self, tracker: Tracker, when: str, call: Any, *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - whatever a library of others raises, the run goes on
            self.trackers = [other for other in self.trackers if other is not tracker]
            warnings.warn(
                f"The tracker {tracker.name} failed {when} and is left out from here on; rounds.jsonl has "
                f"everything. {type(error).__name__}: {first_line(error)}",
                stacklevel=2,
            )


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def numbers_of(line: Mapping[str, Any]) -> dict[str, float]:
    """What a line of rounds.jsonl says of all clients together."""
    numbers: dict[str, Any] = {"seconds": line["seconds"], "clients": len(line["cohort"])}
    numbers |= {key: line[key] for key in SENT}
    numbers |= {"lost": len(line["lost"])} if "lost" in line else {}
    numbers |= {f"loss/{phase}": value for phase, value in line["losses"].items()}
    for name, summary in line.get("metrics", {}).items():
        numbers |= {name: summary["weighted"], f"{name}_bottom_decile": summary["bottom_decile"]}
    return only_finite(numbers)


def last_numbers(result: RunResult | None) -> dict[str, float]:
    """The validation-selected round and its metrics."""
    if result is None or result.selected_round is None:
        return {}
    metrics = {f"selected/{name}": summary.weighted for name, summary in result.selected_metrics.items()}
    return only_finite({"selected/round": result.selected_round, **metrics})


def only_finite(numbers: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)}


def make_tracker(name: str, /, **options: Any) -> Tracker:
    """A tracker by name; says which extra it needs where that is not installed."""
    if name not in TRACKERS:
        raise InvalidConfig(f"There is no tracker '{name}'. {did_you_mean(name, TRACKERS)}")
    module, _, kind = TRACKERS[name].partition(":")
    try:
        make = getattr(import_module(module), kind)
    except ImportError as error:
        raise InvalidConfig(
            f"The tracker {name} needs a package that is not installed ({error.name}): pip install 'plures[track]'."
        ) from error
    tracker: Tracker = make(**options)
    return tracker


def as_trackers(given: Sequence[Tracker | str]) -> list[Tracker]:
    """Trackers, some of them by name."""
    if isinstance(given, str):
        raise InvalidConfig(f"trackers is '{given}': give a list, such as ['{given}'].")
    trackers = [make_tracker(one) if isinstance(one, str) else one for one in given]
    for tracker in trackers:
        if isinstance(tracker, type) or not callable(getattr(tracker, "round_done", None)):
            raise InvalidConfig(f"trackers has {tracker!r:.80}: give names ({', '.join(TRACKERS)}) or trackers.")
    return trackers
