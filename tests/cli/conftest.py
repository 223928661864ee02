"""Commands in this process: quick, and with the output in hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plures.cli import main
from tests.cli.helpers import Said


@pytest.fixture
def plures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Said]:
    """Runs a command in an empty folder, as in a pipe of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def said(*args: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["plures", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        found = capsys.readouterr()
        code = stopped.value.code
        return Said(code if isinstance(code, int) else 0, found.out, found.err)

    return said


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """A short file: ten clients, two rounds."""
    path = tmp_path / "experiment.toml"
    path.write_text('method = "fedavg"\nrounds = 2\n[data]\nclients = 10\n', encoding="utf-8")
    return path
