"""Runs what a reproduction is missing, and says so."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress

from plures.cli.paper_progress import PaperProgress
from plures.papers.checking import check, direction_jobs, directions
from plures.papers.needing import divided
from plures.papers.planning import Job, estimated
from plures.papers.running import Reproduction
from plures.papers.store import Store, check_place
from plures.report.json_text import as_json_text
from plures.report.tables import readable_seconds


def planned(wanted: tuple[list[Job], int], store: Store, console: Console) -> tuple[list[Job], int, dict[str, int]]:
    """What can run with its time, what is there, and what lacks its data."""
    jobs, there = wanted
    jobs, missing = divided(jobs)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("counting operations", total=len(jobs))
        measured = [
            one for folder in sorted(store.folder.parent.glob("*/")) for one in Store(folder=folder).everything()
        ]
        jobs = estimated(
            jobs, measured, store.folder / "operations.json", lambda done: bar.update(task, completed=done)
        )
    return jobs, there, missing


def tell_missing(missing: dict[str, int], console: Console) -> None:
    for source, count in missing.items():
        told = f"{count} runs are left out: '{source}' is not at hand (plures data show {source} says what is missing)."
        console.print(told, style="yellow", highlight=False, soft_wrap=True)


def run_missing(wanted: tuple[list[Job], int], store: Store, runs: Path, at_once: int) -> None:
    """Everything that can run; what went wrong is told at the end, and ends in an error."""
    console = Console(stderr=True)
    check_place(store)
    jobs, there, missing = planned(wanted, store, console)
    tell_missing(missing, console)
    if not jobs:
        return
    seconds = max(sum(job.seconds for job in jobs) / at_once, max(job.seconds for job in jobs))
    about = f"{len(jobs)} runs to do, {there} are there: about {readable_seconds(seconds)} on {at_once} cores."
    console.print(about, highlight=False)
    with PaperProgress(console, jobs, at_once) as progress:
        reproduction = Reproduction(store=store, runs=runs, at_once=at_once, watcher=progress)
        try:
            reproduction.run(jobs)
        except KeyboardInterrupt:
            console.print("Stopped. What has run is kept; the same command goes on.", highlight=False)
            raise typer.Exit(130) from None
    if reproduction.failures:
        for title, words in reproduction.failures.items():
            console.print(f"{title} failed: {words}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1)


def check_directions(at_once: int, *, as_json: bool) -> None:
    """Run them in a folder of their own, so that nothing that was run before helps."""
    wanted = directions()
    with tempfile.TemporaryDirectory(prefix="plures-check-") as place:
        store = Store(folder=Path(place) / "check")
        run_missing((direction_jobs(wanted, store), 0), store, Path(place) / "runs", at_once)
        found = check(wanted, store)
    if as_json:
        told = [
            {"paper": one.paper, "direction": one.direction.name, "holds": one.holds, "figure": one.figure}
            for one in found
        ]
        typer.echo(as_json_text(told, indent=2))
    else:
        console = Console()
        for one in found:
            mark = "holds" if one.holds else "FAILS"
            console.print(f"{mark}  {one.paper}: {one.direction.text}", highlight=False, soft_wrap=True)
            console.print(f"       {one.figure}", highlight=False, soft_wrap=True, style="dim")
    if not all(one.holds for one in found):
        raise typer.Exit(1)
