"""Whether the process of a run still lives, also where its number is used again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from plures.report.processes import Process, started_at, this_process


@pytest.fixture
def sleeper():
    """A process that waits until it is ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    process.stdin.close()


def described(pid: int) -> Process:
    return Process(pid=pid, host=socket.gethostname(), process_started=started_at(pid))


def test_this_process_is_there():
    assert this_process().pid == os.getpid()
    assert not this_process().is_gone()


def test_a_process_is_gone_after_its_end_also_before_its_parent_takes_note(sleeper):
    process = described(sleeper.pid)
    assert not process.is_gone()

    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # it has ended and stays in the table
    assert process.is_gone()

    sleeper.wait()
    assert process.is_gone()


def test_a_number_that_is_used_again_is_another_process(sleeper):
    before = replace(described(sleeper.pid), process_started="an hour ago")

    assert before.is_gone()


def test_without_a_start_the_number_alone_counts(sleeper):
    assert not replace(described(sleeper.pid), process_started=None).is_gone()


def test_of_other_machines_nothing_is_known():
    assert not Process(pid=2**22 + 1, host="elsewhere", process_started=None).is_gone()


@pytest.mark.parametrize("pid", [2**22 + 1, 2**40])
def test_a_number_that_none_has_is_gone(pid):
    assert Process(pid=pid, host=socket.gethostname(), process_started=None).is_gone()
