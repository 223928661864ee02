"""Shows a run as it goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from plures.core.context import RoundReport
from plures.evaluate import ModelKind, Summary
from plures.report.tables import percent, readable_bytes


class BarWatcher:
    """A line per run: rounds, rate, remaining time, accuracy, bytes."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>11}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[accuracy]}"),
            console=console,
        )
        self.task: TaskID | None = None
        self.clients_done, self.began, self.accuracy = 0, 0.0, ""
        self.headline: ModelKind = "personal"

    def started(self, title: str, rounds: int, clients: int, headline: ModelKind) -> None:
        self.clients_done, self.began, self.accuracy, self.headline = 0, time.perf_counter(), "", headline
        self.progress.start()
        self.task = self.progress.add_task(title, total=rounds, rate="", accuracy="")

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary]) -> None:
        self.clients_done += len(report.cohort)
        self.accuracy = shown_accuracy(metrics, self.headline) or self.accuracy
        rate = self.clients_done / max(time.perf_counter() - self.began, 1e-9)
        if self.task is not None:
            self.progress.update(self.task, advance=1, rate=f"{rate:.0f} cl/s", accuracy=self.accuracy)

    def ended(self) -> None:
        self.progress.stop()


class LineWatcher:
    """One line per evaluated round, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.title, self.rounds, self.num_bytes, self.began = "", 0, 0, 0.0
        self.headline: ModelKind = "personal"

    def started(self, title: str, rounds: int, clients: int, headline: ModelKind) -> None:
        self.title, self.rounds, self.num_bytes, self.began = title, rounds, 0, time.perf_counter()
        self.headline = headline
        self.console.print(f"{title}: {rounds} rounds, {clients} clients", highlight=False)

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary]) -> None:
        self.num_bytes += report.bytes_down + report.bytes_up
        if metrics:
            spent = time.perf_counter() - self.began
            left = spent / report.round * (self.rounds - report.round)
            where = f"{self.title} {report.round}/{self.rounds}"
            costs = f"{readable_bytes(self.num_bytes)}  {spent:.0f} s, {left:.0f} s left"
            self.console.print(f"{where}  {shown_accuracy(metrics, self.headline)}  {costs}", highlight=False)

    def ended(self) -> None: ...


def shown_accuracy(metrics: Mapping[str, Summary], headline: ModelKind) -> str:
    found = metrics.get(f"{headline}/test/accuracy")
    return "" if found is None else f"{headline} {percent(found.weighted)}"


def make_watcher(console: Console) -> BarWatcher | LineWatcher:
    return BarWatcher(console) if console.is_terminal else LineWatcher(console)
