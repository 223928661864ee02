"""Shows a search as it goes: a line for each trial, and on a terminal a bar below them."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from plures.core.context import RoundReport
from plures.evaluate import Summary
from plures.recipes.search_space import Point
from plures.recipes.targets import Target
from plures.recipes.trials import Trial
from plures.report.tables import score
from plures.report.tuning_tables import duration, options_text

WIDTH = 80
TESTED = (
    "warning: test data of this search were looked at by an earlier --refit. If what\n"
    "you saw there made you go on, test scores of the new best are too good."
)


def kept_line(kept: int, planned: int) -> str:
    if kept > planned:
        return f"{kept} trials are there already, more than {planned}: none is added"
    going_on = f"; going on with trial {kept}" if kept < planned else ""
    return f"{kept} of {planned} trials are there already{going_on}"


class SearchProgress:
    """Which trial it is, the best so far, and how long the rest will take."""

    def __init__(self, console: Console) -> None:
        self.console, self.metric = console, ""
        self.bar = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[told]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("", total=None, told="")
        self.in_trial, self.rounds, self.best = False, 0, ""
        self.done, self.spent = 0, 0.0

    def search_started(self, target: Target, kept: int, planned: int, tested: bool) -> None:
        self.metric = target.metric
        if kept:
            self.console.print(kept_line(kept, planned), highlight=False)
        if tested and kept < planned:
            self.console.print(TESTED, style="yellow", highlight=False)

    def trial_started(self, number: int, planned: int, options: Point) -> None:
        self.in_trial = True
        self.bar.update(self.task, description=f"trial {number + 1} of {planned}")

    def trial_ended(self, trial: Trial, planned: int, best: Trial | None) -> None:
        self.in_trial, self.done, self.spent = False, self.done + 1, self.spent + trial.seconds
        left = (planned - trial.number - 1) * self.spent / self.done
        self.best = "" if best is None else f"best {score(best.value, self.metric)} (trial {best.number})"
        told = [
            f"trial {trial.number:>{len(str(planned - 1))}}",
            f"{score(trial.value, self.metric):>7}",
            *([] if trial.is_finished else [trial.status]),
            *([self.best] if self.best else []),
            f"{duration(left)} left",
            options_text(trial.options),
        ]
        line = "  ".join(told)
        self.console.print(line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}...", highlight=False, markup=False)

    def started(self, title: str, rounds: int, clients: int, shown: str) -> None:
        self.rounds = rounds
        if not self.in_trial:
            self.console.print(f"{title}: {rounds} rounds, {clients} clients", highlight=False)
            self.bar.update(self.task, description=title)
        self.bar.update(self.task, total=rounds, completed=0, told=self.best)
        self.bar.start()

    def round_done(self, report: RoundReport, metrics: Mapping[str, Summary]) -> None:
        told = f"round {report.round}/{self.rounds}  {self.best}"
        self.bar.update(self.task, completed=report.round, told=told)

    def ended(self) -> None:
        self.bar.stop()
