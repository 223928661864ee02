"""Several runs in one folder: others can see that they go on, and which of them is the current one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plures.recipes.folder import RunFolder
from plures.recipes.watching import CountsRuns, Watcher
from plures.report import records
from plures.report.running import running_now


@contextmanager
def under_way(folder: Path, **facts: Any) -> Iterator[None]:
    """For as long as it goes on, running.json in the folder says so."""
    place = RunFolder.reopened(folder)
    place.write_json(records.RUNNING, running_now(**facts))
    try:
        yield
    finally:
        place.remove(records.RUNNING)


@contextmanager
def several_runs(folder: Path, total: int, watcher: Watcher | None) -> Iterator[Callable[[], None]]:
    """Gives a function to call before each of so many runs."""
    done = 0

    def next_run() -> None:
        nonlocal done
        done += 1
        if isinstance(watcher, CountsRuns):
            watcher.next_run(done, total)

    with under_way(folder, runs=total):
        yield next_run
