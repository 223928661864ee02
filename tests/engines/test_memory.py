"""What steps free stays at hand, in processes that are ours."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import torch
from plures.engines.memory import keep_freed_memory

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.ones(2**24)  # more than the library ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
if sys.argv[1] == "keep":
    keep_freed_memory()
faults(3)
print(faults(20))
"""


def page_faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, encoding="utf-8", check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of the GNU C library")
def test_memory_that_was_freed_is_not_asked_for_again() -> None:
    assert page_faults("keep") < page_faults("give back") / 3


def test_where_the_library_has_no_such_setting_nothing_happens(monkeypatch) -> None:
    from plures.engines import memory

    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    memory.keep_freed_memory()
