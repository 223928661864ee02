"""The command that follows a run from another terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from plures.cli import completing
from plures.cli.run import INTERRUPTED
from plures.cli.watch_views import View, make_view
from plures.core.errors import RunFolderError
from plures.report.finding import find_runs, is_run, is_study
from plures.report.following import Followed
from plures.report.run_states import SOON, list_runs, standing_of
from plures.report.running import read_running

POLL_SECONDS = 0.5


def watch(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN-or-STUDY", help="The folder of a run, or of a study.", autocompletion=completing.run_folders
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Pass on the lines of rounds.jsonl as they are written.")
    ] = False,
) -> None:
    """Follow a run from another terminal until it ends.

    Shows its round, score, losses, pace and remaining time. Of a study the
    current run is followed, then the next. The exit code is 0 if all that was
    followed finished, 1 if not, 130 after Ctrl-C, which does not touch the run.
    """
    try:
        wait_for(folder)
        view = make_view(as_json=as_json)
        finished = follow_run(folder, view) if is_run(folder) else follow_study(folder, view)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(0 if finished else 1)


def wait_for(folder: Path) -> None:
    """A folder that is there but empty is about to be written to."""
    until = time.monotonic() + SOON
    while folder.is_dir() and not any(folder.iterdir()) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    if not folder.is_dir():
        raise RunFolderError(f"There is no folder {folder}. `plures runs` lists the runs that there are.")
    if not is_run(folder) and not is_study(folder) and not any(find_runs(folder)):
        raise RunFolderError(f"{folder} has no run in it. `plures runs` lists the runs that there are.")


def follow_run(folder: Path, view: View, place: str = "") -> bool:
    """Show a run until it ends; whether it finished."""
    run = Followed(folder)
    lines = run.poll()
    view.began(run, place)
    view.polled(run, lines)
    try:
        while run.standing == "running":
            time.sleep(POLL_SECONDS)
            view.polled(run, run.poll())
    finally:
        view.ended(run)
    return run.state == "finished"


def follow_study(folder: Path, view: View) -> bool:
    """Show the current run, then those after it; whether all of the study finished."""
    known = {path for path in find_runs(folder) if standing_of(path, read_running(path)) != "running"}
    while True:
        study = read_running(folder)
        goes_on = study is not None and not study.is_dead()
        new = sorted((path for path in find_runs(folder) if path not in known), key=lambda path: path.stat().st_ctime)
        for path in new:
            known.add(path)
            of = "" if study is None else f" of {study.facts.get('runs', '?')}"
            follow_run(path, view, f" (run {len(known)}{of})")
        if not goes_on and not new:
            break
        time.sleep(0 if new else POLL_SECONDS)
    states = list_runs(folder)
    view.all_ended(states, folder)
    return study is None and all(state.state == "finished" for state in states)
