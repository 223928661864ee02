"""FEMNIST as LEAF's json, TFF's HDF5 and as npz: the same examples by the same writers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import SOURCES
from tests.data.sources.image_files import noise, write_npz

TRAIN = {"f0000_14": 3, "f0001_41": 2, "f0002_99": 4}
TEST = {"f0000_14": 1, "f0002_99": 2}


def share(writer: str, count: int, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and labels, the same whenever they are asked for."""
    seed = sum(map(ord, writer + part))
    return noise(count, 28, 28, seed=seed), (np.arange(count) * 7 + seed) % 62


def write_leaf(folder: Path, part: str, sizes: dict[str, int], files: int = 2) -> list[Path]:
    """Users dealt to several files, pixels as lists of real numbers."""
    (folder / part).mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(files):
        users = sorted(sizes)[number::files]
        shares = {user: share(user, sizes[user], part) for user in users}
        data = {user: {"x": (x.reshape(-1, 784) / 255).tolist(), "y": y.tolist()} for user, (x, y) in shares.items()}
        content = {"users": users, "num_samples": [sizes[user] for user in users], "user_data": data}
        paths.append(folder / part / f"all_data_{number}_niid_0_keep_0_{part}_9.json")
        paths[-1].write_text(json.dumps(content), encoding="utf-8")
    return paths


def write_hdf5(path: Path, part: str, sizes: dict[str, int]) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for user, count in sizes.items():
            x, y = share(user, count, part)
            file[f"examples/{user}/pixels"] = (x / 255).astype(np.float32)
            file[f"examples/{user}/label"] = y.astype(np.int32)


def by_owner(batch: Any, owners: np.ndarray, names: tuple[str, ...]) -> dict[str, tuple[list[Any], list[int]]]:
    owned = {name: np.flatnonzero(owners == place) for place, name in enumerate(names)}
    return {
        name: (batch.inputs[places, 0].tolist(), batch.targets[places].tolist())
        for name, places in owned.items()
        if len(places)
    }


def expected(part: str, sizes: dict[str, int]) -> dict[str, tuple[list[Any], list[int]]]:
    return {user: tuple(values.tolist() for values in share(user, count, part)) for user, count in sizes.items()}


def make_leaf(folder: Path) -> None:
    write_leaf(folder / "femnist", "train", TRAIN)
    write_leaf(folder / "femnist", "test", TEST)


def make_hdf5(folder: Path) -> None:
    write_hdf5(folder / "femnist" / "fed_emnist_train.h5", "train", TRAIN)
    write_hdf5(folder / "femnist" / "fed_emnist_test.h5", "test", TEST)


@pytest.mark.parametrize("make", [make_leaf, make_hdf5])
def test_each_writer_owns_exactly_its_examples(data_folder: Path, make: Callable[[Path], None]) -> None:
    make(data_folder)

    loaded = SOURCES["femnist"].load()

    assert loaded.owner_names == tuple(sorted(TRAIN))
    assert by_owner(loaded.examples, loaded.owners, loaded.owner_names) == expected("train", TRAIN)
    assert by_owner(loaded.test, loaded.test_owners, loaded.owner_names) == expected("test", TEST)
    assert loaded.examples.inputs.dtype == torch.uint8
    assert loaded.examples.inputs.shape[1:] == (1, 28, 28)
    assert loaded.num_classes == 62


def test_writers_of_the_test_files_alone_own_test_examples_only(data_folder: Path) -> None:
    write_leaf(data_folder / "femnist" / "data", "train", {"a": 2})
    write_leaf(data_folder / "femnist" / "data", "test", {"b": 3}, files=1)

    loaded = SOURCES["femnist"].load()

    assert loaded.owner_names == ("a", "b")
    assert (loaded.owners.tolist(), loaded.test_owners.tolist()) == ([0, 0], [1, 1, 1])


def test_the_npz_form_has_writers_and_no_test_set(data_folder: Path) -> None:
    write_npz(
        data_folder / "femnist/femnist.npz",
        x=noise(3, 28, 28),
        y=np.array([61, 0, 5]),
        writer=np.array([1, 0, 1]),
        writers=np.array(["f1", "f2"]),
    )

    loaded = SOURCES["femnist"].load()

    assert loaded.test is None
    assert loaded.owner_names == ("f1", "f2")
    assert loaded.owners.tolist() == [1, 0, 1]


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.pop("user_data"), "no file of LEAF"),
        (lambda c: c["user_data"].pop("f0000_14"), "no x and y of writer f0000_14"),
        (lambda c: c["user_data"]["f0000_14"].pop("x"), "no x and y of writer f0000_14"),
        (lambda c: c["user_data"]["f0000_14"]["x"].pop(), "3 labels and pixels of shape"),
        (lambda c: c["user_data"]["f0000_14"]["x"][0].pop(), "Cannot read"),
        (lambda c: c["user_data"]["f0000_14"]["x"][0].__setitem__(0, 255), "pixels outside 0 to 1"),
        (lambda c: c["user_data"]["f0000_14"]["y"].__setitem__(0, 62), "labels from .* to 62"),
        (lambda c: c["user_data"]["f0000_14"]["y"].__setitem__(0, "A"), "labels of type"),
        (lambda c: c["num_samples"].__setitem__(0, 7), "3 examples of writer f0000_14, but num_samples says 7"),
        (lambda c: c["num_samples"].pop(), "2 users but 1 num_samples"),
    ],
)
def test_a_json_file_of_another_form_is_one_error_that_names_it(
    data_folder: Path, change: Callable[[Any], None], says: str
) -> None:
    make_leaf(data_folder)
    path = sorted((data_folder / "femnist/train").glob("*_0_niid*"))[0]
    change_json(path, change)

    with pytest.raises(InvalidData, match=says) as refused:
        SOURCES["femnist"].load()
    assert str(path) in str(refused.value)
    assert len(refused.value.problems) == 1


@pytest.mark.parametrize("content", [b"", b'{"users": [', b"[1]", b"\xff\xfe"])
def test_a_json_file_that_is_cut_off_is_one_error(data_folder: Path, content: bytes) -> None:
    make_leaf(data_folder)
    sorted((data_folder / "femnist/test").glob("*.json"))[0].write_bytes(content)

    with pytest.raises(InvalidData, match=r"test_9.json.*etch it again"):
        SOURCES["femnist"].load()


def test_a_broken_hdf5_file_is_one_error(data_folder: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    make_hdf5(data_folder)
    path = data_folder / "femnist/fed_emnist_test.h5"
    whole = path.read_bytes()
    for content in (b"", b"<html>404</html>", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(InvalidData, match=r"fed_emnist_test.h5.*etch it again"):
            SOURCES["femnist"].load()
    for entry, says in (("other", "no clients in a group 'examples'"), ("examples/f1/label", "Cannot read")):
        with h5py.File(path, "w") as file:
            file[entry] = np.arange(3)
        with pytest.raises(InvalidData, match=f"fed_emnist_test.h5.*{says}|{says}.*fed_emnist_test.h5"):
            SOURCES["femnist"].load()


def test_without_h5py_the_error_says_what_to_install(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_hdf5(data_folder)
    monkeypatch.setitem(sys.modules, "h5py", None)

    with pytest.raises(InvalidConfig, match=r"needs the package h5py: pip install 'plures\[data\]'"):
        SOURCES["femnist"].load()
