"""A user's own arrays: images, features, names of classes, real targets, clients."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidData
from plures.data import SOURCES
from tests.data.sources.image_files import noise, write_npz

load = SOURCES["npz"].load


@pytest.mark.parametrize(
    ("shape", "order"),
    [((5, 9, 8), None), ((5, 9, 8, 3), (0, 3, 1, 2)), ((5, 3, 9, 8), (0, 1, 2, 3)), ((5, 9, 8, 1), (0, 3, 1, 2))],
)
def test_bytes_are_images_with_channels_first(tmp_path: Path, shape: tuple[int, ...], order: Any) -> None:
    images = noise(*shape)
    path = write_npz(tmp_path / "mine.npz", x=images, y=np.array([0, 1, 2, 0, 1]))

    loaded = load(path=path)

    expected = images[:, None] if order is None else images.transpose(order)
    assert np.array_equal(loaded.examples.inputs.numpy(), expected)
    assert loaded.examples.inputs.dtype == torch.uint8
    assert float(loaded.prepare(loaded.examples.inputs).max()) <= 1
    assert (loaded.num_classes, loaded.owners) == (3, None)


def test_other_inputs_stay_real_numbers(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(4, 7))
    loaded = load(path=write_npz(tmp_path / "mine.npz", x=values, y=np.arange(4)))

    assert loaded.prepare is None
    assert torch.equal(loaded.examples.inputs, torch.tensor(values, dtype=torch.float32))


def test_clients_are_names_or_numbers_and_may_be_called_otherwise(tmp_path: Path) -> None:
    arrays = {
        "a": np.ones((4, 2)),
        "b": np.arange(4),
        "site": np.array(["N", "S", "N", "E"]),
        "client": np.array([9, 9, 2, 10]),
    }
    path = write_npz(tmp_path / "mine.npz", **arrays)

    named, numbered = load(path=path, inputs="a", labels="b", clients="site"), load(path=path, inputs="a", labels="b")

    assert (named.owner_names, named.owners.tolist()) == (("E", "N", "S"), [1, 2, 1, 0])
    assert (numbered.owner_names, numbered.owners.tolist()) == (("2", "9", "10"), [1, 1, 0, 2])


def test_labels_may_be_names_or_real_numbers(tmp_path: Path) -> None:
    named = load(path=write_npz(tmp_path / "a.npz", x=np.ones((3, 2)), y=np.array(["dog", "cat", "dog"])))
    real = load(path=write_npz(tmp_path / "b.npz", x=np.ones((3, 2)), y=np.array([[0.5], [1.5], [2.0]])))

    assert (named.class_names, named.examples.targets.tolist()) == (("cat", "dog"), [1, 0, 1])
    assert (real.goal.name, real.num_classes) == ("regression", 1)
    assert real.examples.targets.tolist() == [0.5, 1.5, 2.0]
    assert real.examples.targets.dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"y": None}, r"has no array 'y' \(it has: x\)"),
        ({"y": np.arange(3)}, "has 4 inputs but 3 labels"),
        ({"y": np.array([0, -1, 1, 1])}, "labels from -1"),
        ({"y": np.ones((4, 3))}, r"labels of type float64 and shape \(4, 3\)"),
        ({"x": np.ones(4)}, r"inputs of type float64 and shape \(4,\)"),
        ({"x": np.ones((4, 2), complex)}, "inputs of type complex128"),
        ({"x": np.ones((0, 2))}, r"shape \(0, 2\)"),
        ({"client": np.zeros(3)}, "has 4 examples but 3 owners"),
    ],
)
def test_arrays_that_are_no_examples_are_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    arrays = {"x": np.ones((4, 2)), "y": np.arange(4)} | change
    path = write_npz(tmp_path / "mine.npz", **{name: value for name, value in arrays.items() if value is not None})

    with pytest.raises(InvalidData, match=says):
        load(path=path)


def test_a_name_of_clients_that_the_file_lacks_is_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mine.npz", x=np.ones((2, 2)), y=np.arange(2))

    with pytest.raises(InvalidData, match="has no array 'hospital'"):
        load(path=path, clients="hospital")


def test_pickled_objects_are_never_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    path.write_bytes(pickle.dumps({"x": 1}))
    with pytest.raises(InvalidData, match=r"Cannot read .*mine.npz: it is no npz file. .*fetch it again.$"):
        load(path=path)
    np.savez(path, x=np.ones((2, 2)), y=np.array([1, "two"], object))
    with pytest.raises(InvalidData, match=r"mine.npz has Python objects in the array 'y'"):
        load(path=path)


def test_a_single_array_is_no_npz_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3))

    with pytest.raises(InvalidData, match=r"is no npz file. Save the arrays with numpy.savez"):
        load(path=tmp_path / "x.npy")
