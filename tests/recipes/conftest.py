"""Makes the small data source known by name, for the length of each test; and runs in folders, for many tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from plures import RunResult
from plures.data import SOURCES, Source
from tests.recipes.helpers import ran, tiny
from tests.recipes.other_data import image_run, table_run, token_run

KeptRun = Callable[[str], RunResult]
"""From a method's name to a run of it, whose folder is `result.folder`."""

SHORTER: dict[str, dict[str, Any]] = {"pfedhn": {"method_options": {"newcomer_steps": 3}}}
"""Options of methods that would take long otherwise."""


@pytest.fixture(autouse=True)
def _tiny_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "tiny", Source(name="tiny", about="for tests", files=(), load=tiny))


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> KeptRun:
    """A run of each method, made when a test first asks for it; nobody changes its folder."""
    root = tmp_path_factory.mktemp("kept")
    return cache(lambda method: ran(method, root / method, **SHORTER.get(method, {})))


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return image_run(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return table_run(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="session")
def texts() -> RunResult:
    return token_run()
