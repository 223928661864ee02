"""Shows a reproduction as it goes: a line for each run that has ended, and on a terminal a bar for each that runs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from plures.cli.steady import steady
from plures.papers.planning import Job
from plures.report.tables import readable_seconds

WIDTH, TITLE = 80, 44


class PaperProgress:
    """How many runs are left, and how long they will take: estimates, corrected by what the runs before took."""

    def __init__(self, console: Console, jobs: Sequence[Job], at_once: int) -> None:
        console.file = steady(console.file)
        self.console, self.jobs, self.at_once = console, jobs, at_once
        self.estimates = {job.key: job.seconds for job in jobs}
        self.rounds: dict[str, tuple[int, int]] = {}
        """Of runs under way: rounds that are done, and all rounds."""
        self.seen: dict[str, tuple[int, float]] = {}
        """The first count of rounds, and when that was: a run may have begun another time."""
        self.began_at: dict[str, float] = {}
        self.done, self.spent, self.expected = 0, 0.0, 0.0
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=14),
            TextColumn("{task.fields[told]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.all = self.bar.add_task(f"{'all runs':<{TITLE}}", total=len(jobs), told="")
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> PaperProgress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def began(self, job: Job) -> None:
        self.began_at[job.key] = time.monotonic()
        self.tasks[job.key] = self.bar.add_task(f"{shortened(named(job)):<{TITLE}}", total=None, told="starts")

    def goes_on(self, job: Job, rounds_done: int, rounds: int) -> None:
        told = f"{rounds_done}/{rounds}" if rounds_done else "starts"
        if rounds_done:
            self.rounds[job.key] = (rounds_done, rounds)
            self.seen.setdefault(job.key, (rounds_done, time.monotonic()))
        self.bar.update(self.tasks[job.key], completed=rounds_done, total=rounds or None, told=told)
        self.bar.update(self.all, told=f"{readable_seconds(self.left())} left")

    def ended(self, job: Job, failure: str | None) -> None:
        took = time.monotonic() - self.began_at.pop(job.key)
        self.done, self.spent, self.expected = self.done + 1, self.spent + took, self.expected + job.seconds
        self.rounds.pop(job.key, None)
        self.bar.remove_task(self.tasks.pop(job.key))
        self.bar.update(self.all, completed=self.done)
        count = f"{self.done:>{len(str(len(self.jobs)))}}/{len(self.jobs)}"
        left = f"{readable_seconds(self.left())} left"
        line = f"{count} {shortened(named(job)):<{TITLE}} {'failed' if failure else readable_seconds(took):>7}  {left}"
        self.console.print(line[:WIDTH], highlight=False, markup=False, style="red" if failure else None)

    def left(self) -> float:
        """Of all runs, on as many cores as are used: those under way by their rounds, the others by their estimates."""
        rest = {key: self.rest_of(key) for key in self.began_at}
        took = self.spent + sum(time.monotonic() - self.began_at[key] + one for key, one in rest.items())
        expected = self.expected + sum(self.estimates[key] for key in rest)
        pace = took / expected if expected > 0 else 1.0
        waiting = sum(self.estimates.values()) - expected
        return max(0.0, sum(rest.values()) + waiting * pace) / self.at_once

    def rest_of(self, key: str) -> float:
        """Of one run: by the rounds that were seen to pass, before that by its estimate."""
        done, rounds = self.rounds.get(key, (0, 0))
        first, since = self.seen.get(key, (0, 0.0))
        if done <= first:
            return max(0.0, self.estimates[key] - (time.monotonic() - self.began_at[key]))
        return (time.monotonic() - since) / (done - first) * (rounds - done)


def named(job: Job) -> str:
    return job.title if job.seed == 0 else f"{job.title}, seed {job.seed}"


def shortened(text: str) -> str:
    return text if len(text) <= TITLE else f"{text[: TITLE - 3]}..."
