"""Fetching: what comes from the hub is written in the form that the loader reads; without a network it is one error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import SOURCES
from plures.data.sources.fetching import COLUMNS, fetch
from plures.data.sources.finding import at_hand
from tests.data.sources.image_files import noise

Rows = list[dict[str, Any]]


def grey_rows(count: int, **more: Any) -> Rows:
    return [{"image": noise(28, 28, seed=n), "label": n % 10, **more} for n in range(count)]


def colour_rows(count: int, *labels: str) -> Rows:
    return [{"img": noise(32, 32, 3, seed=n), **dict.fromkeys(labels, n % 10)} for n in range(count)]


def writer_rows(count: int) -> Rows:
    return [
        {"image": noise(28, 28, seed=n), "character": n, "writer_id": f"f{n % 2}", "hsf_id": 0} for n in range(count)
    ]


HUB: dict[str, dict[str, Rows]] = {
    "ylecun/mnist": {"train": grey_rows(4), "test": grey_rows(2)},
    "zalando-datasets/fashion_mnist": {"train": grey_rows(4), "test": grey_rows(2)},
    "uoft-cs/cifar10": {"train": colour_rows(4, "label"), "test": colour_rows(2, "label")},
    "uoft-cs/cifar100": {part: colour_rows(4, "fine_label", "coarse_label") for part in ("train", "test")},
    "flwrlabs/femnist": {"train": writer_rows(4)},
}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts something in the place of the `datasets` library."""

    def install(load_dataset: Callable[[str], Any]) -> None:
        library = ModuleType("datasets")
        library.load_dataset = load_dataset  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "datasets", library)

    return install


def test_whatever_has_a_name_on_the_hub_can_be_fetched_or_says_how_it_is_got() -> None:
    assert set(COLUMNS) <= {name for name, entry in SOURCES.items() if entry.hub}


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_what_is_fetched_is_what_the_loader_reads(data_folder: Path, serve: Any, name: str) -> None:
    serve(HUB.__getitem__)
    assert at_hand(SOURCES[name]) == "no"

    path = fetch(name)

    loaded = SOURCES[name].load()
    rows = HUB[SOURCES[name].hub or ""]["train"]
    image = "img" if "img" in rows[0] else "image"
    assert path == data_folder / name / f"{name}.npz"
    assert at_hand(SOURCES[name]) == "yes"
    pixels = loaded.examples.inputs.numpy().transpose(0, 2, 3, 1).squeeze()
    assert np.array_equal(pixels, np.stack([row[image] for row in rows]))
    assert loaded.examples.targets.tolist() == [0, 1, 2, 3]
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_writers_become_owners(data_folder: Path, serve: Any) -> None:
    serve(HUB.__getitem__)
    fetch("femnist")

    loaded = SOURCES["femnist"].load()

    assert (loaded.owner_names, loaded.owners.tolist(), loaded.test) == (("f0", "f1"), [0, 1, 0, 1], None)


def test_coarse_labels_are_kept(data_folder: Path, serve: Any) -> None:
    serve(HUB.__getitem__)
    fetch("cifar-100")

    assert SOURCES["cifar-100"].load(labels="coarse").examples.targets.tolist() == [0, 1, 2, 3]


def test_a_file_that_is_there_is_left_alone(tmp_path: Path, serve: Any) -> None:
    serve(HUB.__getitem__)
    path = fetch("mnist", tmp_path)
    before = path.stat().st_mtime_ns
    serve(lambda name: pytest.fail("fetched again"))

    assert fetch("mnist", tmp_path).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "error", [ConnectionError("Couldn't reach 'ylecun/mnist' on the Hub"), ValueError("no"), OSError()]
)
def test_without_a_network_it_is_one_error_that_says_what_to_do(tmp_path: Path, serve: Any, error: Exception) -> None:
    def load_dataset(name: str) -> Any:
        raise error

    serve(load_dataset)
    with pytest.raises(
        InvalidData, match=r"Cannot fetch ylecun/mnist: .*\. Go online, or put into a folder of PLURES_DATA"
    ):
        fetch("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_the_library_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)

    with pytest.raises(InvalidConfig, match=r"needs the package datasets: pip install 'plures\[data\]'"):
        fetch("mnist", tmp_path)


@pytest.mark.parametrize(
    ("splits", "says"),
    [
        ({"train": grey_rows(2)}, "has no part 'test', only: train"),
        ({"train": [{"picture": 1, "label": 1}], "test": []}, "has no column 'image', only: picture, label"),
        ({"train": [], "test": []}, "has no examples"),
    ],
)
def test_a_set_that_has_changed_on_the_hub_is_one_error(tmp_path: Path, serve: Any, splits: Any, says: str) -> None:
    serve(lambda name: splits)

    with pytest.raises(InvalidData, match=f"ylecun/mnist {says}"):
        fetch("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_on_the_hub_is_refused_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"'omniglot' cannot be fetched: put into .*Can be fetched: cifar-10"):
        fetch("omniglot", tmp_path)
    with pytest.raises(InvalidConfig, match="'digits' cannot be fetched: it needs no file"):
        fetch("digits", tmp_path)


def test_without_a_folder_to_write_to_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, serve: Any
) -> None:
    serve(HUB.__getitem__)
    monkeypatch.delenv("PLURES_DATA", raising=False)
    with pytest.raises(InvalidConfig, match="PLURES_DATA names no folder that there is: set it, or give --into"):
        fetch("mnist")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidConfig, match=r"Cannot write .*--into"):
        fetch("mnist", tmp_path / "file")
