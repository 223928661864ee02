"""An empty folder that is all of PLURES_DATA."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("PLURES_DATA", str(folder))
    return folder
