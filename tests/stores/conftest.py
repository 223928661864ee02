"""A store in a file of the test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plures.stores.disk import DiskStore

OpenStore = Callable[..., DiskStore]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "personal.db"


@pytest.fixture
def open_store(path: Path) -> Iterator[OpenStore]:
    """Opens the file again and again; all stores are closed in the end."""
    stores = list[DiskStore]()

    def opened(**options) -> DiskStore:
        stores.append(DiskStore(path, **options))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()
