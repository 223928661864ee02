"""Runs what is missing, several runs at a time, each in a process and on one core of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from plures.papers.planning import Job
from plures.papers.store import Store
from plures.recipes.experiment import plain_table
from plures.report import records

POLL_SECONDS = 0.5
LAST_WORDS = 600
"""Characters of what a failed run said."""


class Watches(Protocol):
    """Is told how a reproduction goes."""

    def began(self, job: Job) -> None: ...

    def goes_on(self, job: Job, rounds_done: int, rounds: int) -> None: ...

    def ended(self, job: Job, failure: str | None) -> None: ...


@dataclass(kw_only=True)
class Reproduction:
    """Runs jobs and leaves an outcome of each in the store; a run that was cut goes on from its last checkpoint."""

    store: Store
    runs: Path
    """Folders of runs, one for each job."""
    at_once: int
    watcher: Watches
    failures: dict[str, str] = field(default_factory=dict)
    """By the title of a job, what its run said last."""
    under_way: list[tuple[Job, subprocess.Popen[bytes]]] = field(default_factory=list)

    def run(self, jobs: Sequence[Job]) -> None:
        waiting, staged = list(jobs), set[str]()
        with self.ending():
            while waiting or self.under_way:
                self.start_some(waiting, staged)
                time.sleep(POLL_SECONDS)
                self.look(staged)

    def start_some(self, waiting: list[Job], staged: set[str]) -> None:
        """As many as may run at once; of those with one first stage only one, until that stage is there."""
        busy = {job.waits_for for job, _ in self.under_way}
        for job in tuple(waiting):
            if len(self.under_way) >= self.at_once:
                return
            if job.waits_for is not None and job.waits_for not in staged and job.waits_for in busy:
                continue
            waiting.remove(job)
            self.under_way.append((job, self.start(job)))
            busy.add(job.waits_for)
            self.watcher.began(job)

    def start(self, job: Job) -> subprocess.Popen[bytes]:
        folder = self.runs / job.key
        self.runs.mkdir(parents=True, exist_ok=True)
        asked = {
            "key": job.key,
            "experiment": plain_table(job.cell.experiment(job.seed)),
            "folder": str(folder),
            "outcome": str(self.store.path(job.key)),
            "extras": list(job.cell.extras),
            "engine": "cached" if self.at_once > 1 else "auto",
            "pretrained": str(self.runs / "pretrained"),
        }
        with self.log(job).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "plures.papers.job"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"} if self.at_once > 1 else None,
                start_new_session=True,
            )
        assert process.stdin is not None
        process.stdin.write(json.dumps(asked).encode())
        process.stdin.close()
        return process

    def log(self, job: Job) -> Path:
        return self.runs / f"{job.key}.log"

    def look(self, staged: set[str]) -> None:
        for job, process in tuple(self.under_way):
            done = rounds_done(self.runs / job.key)
            if done and job.waits_for is not None:
                staged.add(job.waits_for)
            if process.poll() is None:
                self.watcher.goes_on(job, done, job.cell.experiment(job.seed).rounds)
                continue
            self.under_way.remove((job, process))
            if job.waits_for is not None:
                staged.add(job.waits_for)
            failure = None if process.returncode == 0 else self.words_of(job, process.returncode)
            if failure is not None:
                self.failures[job.title] = failure
            self.watcher.ended(job, failure)

    def words_of(self, job: Job, code: int) -> str:
        said = self.log(job).read_text("utf-8", errors="replace").strip()
        return said[-LAST_WORDS:] or f"it ended with code {code}"

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Whatever happens here, no run is left alone; each keeps its last whole round."""
        try:
            yield
        except BaseException:
            for _, process in self.under_way:
                process.send_signal(signal.SIGINT)
            for _, process in self.under_way:
                process.wait()
            raise


def rounds_done(folder: Path) -> int:
    """Whole rounds of a run so far."""
    try:
        with (folder / records.ROUNDS).open("rb") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0
