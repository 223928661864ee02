"""Makes the small data source known by name, for the length of each test."""

from __future__ import annotations

import pytest

from plures.data import SOURCES, Source
from tests.recipes.helpers import tiny


@pytest.fixture(autouse=True)
def _tiny_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "tiny", Source(name="tiny", about="for tests", files=(), load=tiny))
