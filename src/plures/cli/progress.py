"""Shows a run as it goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from plures.core.context import RoundReport
from plures.evaluate import Summary
from plures.report.tables import four_digits, percent, readable_bytes


class BarWatcher:
    """A line per run: rounds, rate, remaining time, score, bytes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = self._bar()
        self.task: TaskID | None = None
        self.clients_done, self.began, self.score = 0, 0.0, ""
        self.shown = ""

    def _bar(self) -> Progress:
        return Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>11}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[score]}"),
            console=self.console,
        )

    def started(self, title: str, rounds: int, clients: int, shown: str) -> None:
        self.clients_done, self.began, self.score, self.shown = 0, time.perf_counter(), "", shown
        self.progress = self._bar()  # restarted, it would write its old lines again
        self.progress.start()
        self.task = self.progress.add_task(title, total=rounds, rate="", score="")

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary]) -> None:
        self.clients_done += len(report.cohort)
        self.score = score_of(metrics, self.shown) or self.score
        rate = self.clients_done / max(time.perf_counter() - self.began, 1e-9)
        if self.task is not None:
            self.progress.update(self.task, advance=1, rate=f"{rate:.0f} cl/s", score=self.score)

    def ended(self) -> None:
        self.progress.stop()


class LineWatcher:
    """One line per evaluated round, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.title, self.rounds, self.num_bytes, self.began = "", 0, 0, 0.0
        self.shown = ""

    def started(self, title: str, rounds: int, clients: int, shown: str) -> None:
        self.title, self.rounds, self.num_bytes, self.began = title, rounds, 0, time.perf_counter()
        self.shown = shown
        self.console.print(f"{title}: {rounds} rounds, {clients} clients", highlight=False)

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary]) -> None:
        self.num_bytes += report.bytes_down + report.bytes_up
        if metrics:
            spent = time.perf_counter() - self.began
            left = spent / report.round * (self.rounds - report.round)
            where = f"{self.title} {report.round}/{self.rounds}"
            costs = f"{readable_bytes(self.num_bytes)}  {spent:.0f} s, {left:.0f} s left"
            self.console.print(f"{where}  {score_of(metrics, self.shown)}  {costs}", highlight=False)

    def ended(self) -> None: ...


def score_of(metrics: Mapping[str, Summary], shown: str) -> str:
    """The model and its accuracy, or its other metric by name."""
    if shown not in metrics:
        return ""
    model, _, metric = shown.split("/")
    value = metrics[shown].weighted
    return f"{model} {percent(value)}" if metric == "accuracy" else f"{model} {metric} {four_digits(value)}"


def make_watcher(console: Console) -> BarWatcher | LineWatcher:
    return BarWatcher(console) if console.is_terminal else LineWatcher(console)
