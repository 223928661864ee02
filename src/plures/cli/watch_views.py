"""How a run that is followed is shown: a live picture on a terminal, plain lines elsewhere, or its own lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from plures.report import records
from plures.report.following import Followed, sparkline
from plures.report.run_states import RunState
from plures.report.run_tables import runs_table
from plures.report.tables import four_digits, named_score, readable_bytes, readable_seconds, score

CURVE = 40
"""Characters of the curve, so that a name and a number stand beside it."""


class View(Protocol):
    """Shows one run after the other."""

    def began(self, run: Followed, place: str) -> None:
        """`place` says which of several it is."""

    def polled(self, run: Followed, lines: list[str]) -> None: ...

    def ended(self, run: Followed) -> None:
        """It has ended, or nobody watches any more."""

    def all_ended(self, runs: Sequence[RunState], folder: Path) -> None:
        """After the last of several."""


class LiveView:
    """A few lines that are drawn again."""

    def __init__(self, console: Console) -> None:
        self.console, self.live, self.place = console, Live(console=console, auto_refresh=False), ""

    def began(self, run: Followed, place: str) -> None:
        self.place = place
        self.live = Live(console=self.console, auto_refresh=False)
        self.live.start()

    def polled(self, run: Followed, lines: list[str]) -> None:
        self.live.update(picture(run, self.place, self.console), refresh=True)

    def ended(self, run: Followed) -> None:
        self.live.stop()
        tell_end(self.console, run)

    def all_ended(self, runs: Sequence[RunState], folder: Path) -> None:
        self.console.print(runs_table(runs, folder), highlight=False)


class LineView:
    """A line per evaluated round, and one for the end."""

    def __init__(self, console: Console) -> None:
        self.console, self.shown = console, 0

    def began(self, run: Followed, place: str) -> None:
        self.shown = 0
        told(self.console, f"{head(run)}{place}")

    def polled(self, run: Followed, lines: list[str]) -> None:
        new = run.scores[self.shown :]
        for round, value in new:
            pace = f"  {pace_line(run)}" if (round, value) == new[-1] else ""  # that of earlier rounds is not known
            told(self.console, f"{run.title} {round}/{run.rounds}  {named_score(run.shown or '', value)}{pace}")
        self.shown = len(run.scores)

    def ended(self, run: Followed) -> None:
        tell_end(self.console, run)

    def all_ended(self, runs: Sequence[RunState], folder: Path) -> None:
        self.console.print(runs_table(runs, folder), highlight=False)


class JsonView:
    """The lines of rounds.jsonl as they come; of several runs each says of which it is; at last, how they stand."""

    def __init__(self) -> None:
        self.place = ""

    def began(self, run: Followed, place: str) -> None:
        self.place = place

    def polled(self, run: Followed, lines: list[str]) -> None:
        for line in lines:
            typer.echo(line if not self.place else json.dumps({"run": str(run.folder), **json.loads(line)}))

    def ended(self, run: Followed) -> None: ...

    def all_ended(self, runs: Sequence[RunState], folder: Path) -> None:
        for run in runs:
            typer.echo(json.dumps(run.as_json()))


def make_view(*, as_json: bool) -> View:
    console = Console()
    if as_json:
        return JsonView()
    return LiveView(console) if console.is_terminal else LineView(console)


def told(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def tell_end(console: Console, run: Followed) -> None:
    """Nothing of a run that goes on."""
    if run.standing != "running":
        told(console, end_line(run))


def picture(run: Followed, place: str, console: Console) -> Group:
    """Round, score with its curve, losses and pace."""
    lines = [Text(f"{head(run)}{place}: {run.state}, round {run.rounds_done} of {run.rounds or '?'}", style="bold")]
    if run.scores:
        values = [value for _, value in run.scores]
        curve = f"  {sparkline(values, CURVE)}" if can_draw(console) else ""
        lines.append(Text(f"{run.shown} {score_text(run, values[-1])}{curve}"))
    if run.latest:
        losses = ", ".join(f"{phase} {four_digits(value)}" for phase, value in run.latest["losses"].items() if value)
        lines += [Text(f"loss: {losses or '-'}"), Text(pace_line(run))]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)


def can_draw(console: Console) -> bool:
    return console.encoding.startswith("utf")


def head(run: Followed) -> str:
    seed = run.facts.get("seed")
    return run.title if seed is None or run.title.endswith(f" {seed}") else f"{run.title}, seed {seed}"


def score_text(run: Followed, value: float | None) -> str:
    return score(value, (run.shown or "").rpartition("/")[2])


def pace_line(run: Followed) -> str:
    words = [f"{run.rate:.0f} clients/s", f"{readable_bytes(run.num_bytes)} sent"]
    if run.standing == "running" and run.spent is not None:
        words.append(readable_seconds(run.spent))
    if run.standing == "running" and run.left is not None:
        words.append(f"{readable_seconds(run.left)} left")
    return "  ".join(words)


def end_line(run: Followed) -> str:
    """How it ended, and where its results are."""
    done = f"{run.rounds_done} of {run.rounds or '?'} rounds"
    if run.state == "finished":
        found = "" if run.shown is None else f", {run.shown} {score_text(run, run.value)}"
        return f"finished: {done}{found}. Results: {run.folder}"
    kept = f"The whole rounds are kept in {run.folder}"
    if run.standing == "ended":
        return f"{run.state} after {done}. {kept}"
    again = run.folder / records.EXPERIMENT
    repeat = f"; to repeat it: plures run {again}" if again.is_file() else ""
    process = "" if run.running is None else f" ({run.running.process.pid} on {run.running.process.host})"
    return f"dead after {done}: its process{process} is gone. {kept}{repeat}"
