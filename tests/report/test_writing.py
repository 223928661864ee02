"""Files are whole at any moment, also where several processes write the same one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from plures.core.errors import RunFolderError
from plures.report.writing import write_whole

WRITER = """
import sys
from pathlib import Path
from plures.report.writing import write_whole
for number in range(100):
    write_whole(Path(sys.argv[1]), sys.argv[2] * 10_000)
"""


def test_several_processes_may_write_the_same_file(tmp_path):
    path = tmp_path / "notes.json"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), letter], stderr=subprocess.PIPE) for letter in "ab"
    ]

    said = [writer.communicate(timeout=120)[1].decode() for writer in writers]

    assert [writer.returncode for writer in writers] == [0, 0], said
    assert path.read_text("utf-8") in ("a" * 10_000, "b" * 10_000)
    assert os.listdir(tmp_path) == ["notes.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "notes.json"
    path.write_text("old", encoding="utf-8")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunFolderError, match="No space left"):
        write_whole(path, "new")

    assert path.read_text("utf-8") == "old"
    assert os.listdir(tmp_path) == ["notes.json"]
