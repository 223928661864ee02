"""The time that a reproduction will take: estimates, then what runs show."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from plures.cli import paper_progress
from plures.cli.paper_progress import PaperProgress
from plures.papers.planning import Job
from tests.papers.made_up import OWN


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(paper_progress.time, "monotonic", lambda: now[0])
    return now


def job(key: str, seconds: float) -> Job:
    return Job(recipe="table-1", cell=OWN, seed=0, key=key, seconds=seconds)


def test_what_is_left_is_estimated_then_measured(clock):
    console = Console(file=io.StringIO(), width=80)
    jobs = [job("a", 10.0), job("b", 30.0)]
    with PaperProgress(console, jobs, 1) as progress:
        progress.began(jobs[0])
        clock[0] = 4.0
        assert progress.left() == pytest.approx(6 + 30)
        progress.goes_on(jobs[0], 1, 5)
        clock[0] = 8.0
        progress.goes_on(jobs[0], 3, 5)
        # Two rounds in four seconds: two more are four; 12 in all, where 10 were expected, so 36 for the other.
        assert progress.left() == pytest.approx(4 + 36)
        clock[0] = 20.0
        progress.ended(jobs[0], None)
        assert progress.left() == pytest.approx(60)
    assert "1/2 table-1: Local, digits" in console.file.getvalue()
    assert "0:20  1:00 left" in console.file.getvalue()


def test_a_run_that_goes_on_is_measured_from_where_it_began_today(clock):
    progress = PaperProgress(Console(file=io.StringIO()), [job("a", 100.0)], 1)
    progress.began(progress.jobs[0])
    progress.goes_on(progress.jobs[0], 150, 200)
    clock[0] = 10.0
    progress.goes_on(progress.jobs[0], 160, 200)

    assert progress.left() == pytest.approx(40)
