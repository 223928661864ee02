"""Shows a run as it goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from plures.cli.steady import steady
from plures.report.tables import named_score, readable_bytes, readable_seconds

if TYPE_CHECKING:
    from plures.core.context import RoundReport
    from plures.evaluate import Summary

LONGEST_TITLE, LONGEST_SCORE, LONGEST_ACCURACY = 10, 21, 16
OTHERS = 40
"""Columns of title, rate, bytes and time, with a blank after each column."""


class Pace:
    """How fast a run goes, and when it and those after it will have ended."""

    def __init__(self) -> None:
        self.number, self.total, self.all_began = 1, 1, time.perf_counter()
        self.begin(0)

    def next_run(self, number: int, total: int) -> None:
        """The first or a later one of several runs."""
        if number == 1:
            self.all_began = time.perf_counter()
        self.number, self.total = number, total

    def begin(self, rounds: int) -> None:
        self.rounds, self.rounds_done, self.clients, self.num_bytes = rounds, 0, 0, 0
        self.before = 0
        """Rounds that were there when the run went on."""
        self.began, self.score = time.perf_counter(), ""

    def resume(self, rounds_done: int) -> None:
        self.before = self.rounds_done = rounds_done

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary], shown: str) -> None:
        self.rounds_done = report.round
        self.clients += len(report.cohort)
        self.num_bytes += report.bytes_down + report.bytes_up
        self.score = score_of(metrics, shown) or self.score

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began

    @property
    def rate(self) -> str:
        """Clients in a second, in eight characters at most."""
        rate = self.clients / max(self.spent, 1e-9)
        return f"{rate:.0f} cl/s" if rate < 1000 else f"{rate / 1000:.0f}k cl/s"

    @property
    def left(self) -> float:
        return self.spent / max(self.rounds_done - self.before, 1) * (self.rounds - self.rounds_done)

    @property
    def left_of_all(self) -> float:
        """Of this run and those after it, which are expected to take as long as those before them."""
        now = time.perf_counter()
        return self.left + (now - self.all_began + self.left) / self.number * (self.total - self.number)


class BarWatcher:
    """A line per run: rounds, score, rate, bytes, time that is left, or at the end that it took.

    With several runs there is one line more, for all of them.
    """

    def __init__(self, console: Console) -> None:
        self.console, self.pace, self.shown = console, Pace(), ""
        self.progress = self._bar()
        self.task: TaskID | None = None
        self.all: TaskID | None = None

    @property
    def score(self) -> str:
        return self.pace.score

    def _bar(self, rounds: int = 0) -> Progress:
        """The bar itself has what the numbers leave."""
        score = LONGEST_ACCURACY if self.shown.endswith("/accuracy") else LONGEST_SCORE
        left = self.console.width - OTHERS - (2 * len(str(rounds)) + 1) - score
        return Progress(
            TextColumn(f"{{task.description:<{LONGEST_TITLE}}}", markup=False),
            BarColumn(bar_width=max(4, min(16, left))),
            MofNCompleteColumn(),
            TextColumn("{task.fields[score]}", markup=False),
            TextColumn("{task.fields[rate]:>8}"),
            TextColumn("{task.fields[sent]:>8}"),
            TextColumn("{task.fields[left]:>7}"),
            console=self.console,
        )

    def next_run(self, number: int, total: int) -> None:
        self.pace.next_run(number, total)

    def started(self, title: str, rounds: int, clients: int, shown: str) -> None:
        self.pace.begin(rounds)
        self.shown = shown
        self.progress = self._bar(rounds)  # restarted, it would write its old lines again
        self.progress.start()
        self.task = self._line(cut(title, LONGEST_TITLE), rounds)
        if self.pace.total > 1:
            self.all = self._line("all runs", self.pace.total, done=self.pace.number - 1)

    def resumed(self, rounds_done: int) -> None:
        self.pace.resume(rounds_done)
        if self.task is not None:
            self.progress.update(self.task, completed=rounds_done)

    def _line(self, title: str, total: int, *, done: int = 0) -> TaskID:
        return self.progress.add_task(title, total=total, completed=done, rate="", score="", sent="", left="")

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary]) -> None:
        self.pace.round_done(report, metrics, self.shown)
        if self.task is not None:
            sent, shown = readable_bytes(self.pace.num_bytes), cut(self.score, LONGEST_SCORE)
            is_over = self.pace.rounds_done == self.pace.rounds
            left = readable_seconds(self.pace.spent if is_over else self.pace.left)
            self.progress.update(self.task, advance=1, rate=self.pace.rate, score=shown, sent=sent, left=left)
        if self.all is not None:
            self.progress.update(self.all, left=readable_seconds(self.pace.left_of_all))

    def ended(self) -> None:
        if self.all is not None:
            self.progress.update(self.all, visible=False)  # what stays on the screen is the run
            self.all = None
        self.progress.stop()


class LineWatcher:
    """One line per evaluated round, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self.console, self.pace = console, Pace()
        self.title, self.shown = "", ""

    def next_run(self, number: int, total: int) -> None:
        self.pace.next_run(number, total)

    def started(self, title: str, rounds: int, clients: int, shown: str) -> None:
        self.title, self.shown = title, shown
        self.pace.begin(rounds)
        which = f"run {self.pace.number} of {self.pace.total}, " if self.pace.total > 1 else ""
        self._print(f"{title}: {which}{rounds} rounds, {clients} clients")

    def resumed(self, rounds_done: int) -> None:
        self.pace.resume(rounds_done)
        self._print(f"{self.title}: goes on after round {rounds_done}")

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary]) -> None:
        self.pace.round_done(report, metrics, self.shown)
        if not metrics:
            return
        pace = self.pace
        where = f"{self.title} {report.round}/{pace.rounds}  {pace.rate}  {score_of(metrics, self.shown)}"
        left = f"{pace.left:.0f} s left" + (f", {pace.left_of_all:.0f} s of all" if pace.total > 1 else "")
        self._print(f"{where}  {readable_bytes(pace.num_bytes)}  {pace.spent:.0f} s, {left}")

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def ended(self) -> None: ...


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def score_of(metrics: Mapping[str, Summary], shown: str) -> str:
    """The model and its accuracy, or its other metric by name."""
    return named_score(shown, metrics[shown].weighted) if shown in metrics else ""


def make_watcher(console: Console) -> BarWatcher | LineWatcher:
    """Nothing that happens to the terminal may end a run: what cannot be shown is not."""
    console.file = steady(console.file)
    return BarWatcher(console) if console.is_terminal else LineWatcher(console)
