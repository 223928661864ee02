"""One trial of a search: an experiment at one point, run on training data and scored on validation data."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from plures.core.context import RoundReport
from plures.core.errors import Diverged, PluresError, RunFolderError, Stopped
from plures.evaluate import Summary
from plures.recipes.experiment import Experiment, make_experiment, plain_table
from plures.recipes.folder import as_json_text
from plures.recipes.optuna_study import State
from plures.recipes.overrides import set_key
from plures.recipes.results import RunResult
from plures.recipes.search_space import Point
from plures.recipes.targets import Target
from plures.recipes.watching import Silence, Watcher
from plures.report import records

TRIALS = "trials"
Report = Callable[[int, float], bool]
"""(round, value) -> whether the trial is not worth going on with."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a trial came to."""

    number: int
    status: State
    value: float | None
    """The mean over seeds, of the last round; of a trial that was stopped, where it stood."""
    values: tuple[float, ...]
    """By seed."""
    rounds: int
    seconds: float
    options: Point
    folder: str
    """Below the search's own."""
    reason: str | None = None
    """Why it diverged or failed."""

    @property
    def is_finished(self) -> bool:
        return self.status == "finished"

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"values": list(self.values)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Trial:
        return cls(**{**record, "values": tuple(record["values"])})


class SearchWatcher(Watcher, Protocol):
    """Is told how a search goes, and how the runs in it go."""

    def search_started(self, target: Target, kept: int, planned: int, tested: bool) -> None:
        """`kept` trials are there from before; `tested`: so is a refit, which looked at test data."""

    def trial_started(self, number: int, planned: int, options: Point) -> None: ...

    def trial_ended(self, trial: Trial, planned: int, best: Trial | None) -> None: ...


class SearchSilence(Silence):
    """The watcher that shows nothing."""

    def search_started(self, target: Target, kept: int, planned: int, tested: bool) -> None: ...

    def trial_started(self, number: int, planned: int, options: Point) -> None: ...

    def trial_ended(self, trial: Trial, planned: int, best: Trial | None) -> None: ...


def at_point(experiment: Experiment, point: Mapping[str, Any]) -> Experiment:
    """The experiment with the values of a point, and without its search."""
    table = plain_table(experiment)
    for key, value in point.items():
        set_key(table, key, value)
    return make_experiment(table)


def as_trial(experiment: Experiment, target: Target) -> Experiment:
    """The experiment with validation data as all that is evaluated."""
    evaluation = experiment.evaluation.model_copy(
        update={
            "splits": ["validation"],
            "models": target.models,
            "metrics": target.metrics,
            "targets": [],
            "guard": False,
            "post_local": False,
            "diagnostics": False,
        }
    )
    return experiment.model_copy(update={"evaluation": evaluation, "out": None, "tune": None})


class TrialWatcher:
    """Passes on how a run goes, reports its values, and stops it where that is advised."""

    def __init__(self, title: str, target: Target, report: Report, shown_to: Watcher) -> None:
        self.title, self.target, self.report, self.shown_to = title, target, report, shown_to
        self.metric, self.rounds, self.done = "", 0, 0
        self.value = math.nan

    def started(self, title: str, rounds: int, clients: int, shown: str) -> None:
        # A stage before the experiment's own rounds has a title of its own, and nothing to be stopped for.
        self.metric = self.target.name(shown.partition("/")[0]) if title == self.title else ""
        self.rounds = rounds
        self.shown_to.started(title, rounds, clients, shown)

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary]) -> None:
        self.shown_to.round_done(report, metrics)
        if not self.metric:
            return
        self.done = report.round
        if self.metric in metrics and math.isfinite(metrics[self.metric].weighted):
            self.value = metrics[self.metric].weighted
            if self.report(report.round, self.value) and report.round < self.rounds:
                raise Stopped(f"{self.title} was stopped after round {report.round}: others were better by then.")

    def ended(self) -> None:
        self.shown_to.ended()


@dataclass(frozen=True, kw_only=True)
class TrialRunner:
    """Runs trials in a folder."""

    experiment: Experiment
    run: Callable[..., RunResult]
    target: Target
    seeds: int
    out: Path
    watcher: SearchWatcher

    def __call__(self, number: int, point: Point, report: Report) -> Trial:
        """A point under every seed. Only the first seed's run may be stopped: then there are no others."""
        folder = f"{TRIALS}/{number:04d}"
        if (self.out / folder).exists():  # of a search that ended before this trial did
            shutil.rmtree(self.out / folder)
        began, values, done = time.perf_counter(), list[float](), 0
        status, reason = "finished", None
        for place in range(self.seeds):
            asked = report if place == 0 else never
            watched = TrialWatcher(f"trial {number}", self.target, asked, self.watcher)
            try:
                result = self._run(number, point, place, watched)
                done = result.server.round
                values.append(value_of(result, self.target))
            except (Stopped, Diverged) as trouble:
                status = "stopped" if isinstance(trouble, Stopped) else "diverged"
                done, reason = watched.done, str(trouble)
                values += [watched.value] if status == "stopped" else []
                break
            except RunFolderError:
                raise
            except PluresError as trouble:
                status, reason = "failed", str(trouble)
                break
        if status == "finished" and not all(map(math.isfinite, values)):
            status, reason = "diverged", f"{self.target.text} is no finite number after the last round."
        return Trial(
            number=number,
            status=status,  # type: ignore[arg-type]
            value=sum(values) / len(values) if status in ("finished", "stopped") else None,
            values=tuple(value for value in values if math.isfinite(value)),
            rounds=done,
            seconds=round(time.perf_counter() - began, 3),
            options=point,
            folder=folder,
            reason=reason,
        )

    def _run(self, number: int, point: Point, place: int, watcher: Watcher) -> RunResult:
        experiment = as_trial(at_point(self.experiment, point), self.target)
        first, seed = experiment.seed, experiment.seed + place
        folder = self.out / TRIALS / f"{number:04d}"
        below = folder if self.seeds == 1 else folder / f"seed-{seed}"
        experiment = experiment.model_copy(update={"seed": seed})
        result = self.run(experiment, out=below, title=f"trial {number}", watcher=watcher)
        if self.seeds > 1:
            write_study(folder, experiment.method.rpartition(":")[2], range(first, seed + 1))
        return result


def write_study(folder: Path, label: str, seeds: Sequence[int]) -> None:
    """Name the runs of a trial that have finished, for `plures compare`."""
    runs = [{"label": label, "seed": seed, "folder": f"seed-{seed}"} for seed in seeds]
    (folder / records.STUDY).write_text(as_json_text({"runs": runs}, indent=2) + "\n", encoding="utf-8")


def never(round: int, value: float) -> bool:
    return False


def value_of(result: RunResult, target: Target) -> float:
    """On validation data after the last round, as a refit without validation data will end there too."""
    name = target.name(result.headline)
    return result.metrics[name].weighted if name in result.metrics else math.nan
