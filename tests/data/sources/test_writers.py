"""Characters and digits by writer: UNIPEN's npz file, and MNIST with the label files of QMNIST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidData
from plures.data import SOURCES
from tests.data.sources.image_files import mnist_arrays, noise, write_idx, write_mnist, write_npz


def unipen_arrays(**change: Any) -> dict[str, np.ndarray]:
    arrays = {
        "x": noise(5, 28, 28),
        "y": np.array([0, 61, 10, 36, 1], np.uint8),
        "writer": np.array([0, 0, 1, 2, 2], np.uint16),
        "writers": np.array(["apple-012", "apple-013", "cee-001"]),
        "classes": np.array(list("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")),
    }
    return {name: value for name, value in (arrays | change).items() if value is not None}


def test_unipen_characters_belong_to_their_writers(data_folder: Path) -> None:
    arrays = unipen_arrays()
    write_npz(data_folder / "unipen-chars/unipen-chars.npz", **arrays)

    loaded = SOURCES["unipen"].load()

    assert np.array_equal(loaded.examples.inputs[:, 0].numpy(), arrays["x"])
    assert loaded.examples.inputs.dtype == torch.uint8
    assert [loaded.class_names[label] for label in loaded.examples.targets] == ["0", "z", "A", "a", "1"]
    assert loaded.owner_names == ("apple-012", "apple-013", "cee-001")
    assert loaded.owners.tolist() == [0, 0, 1, 2, 2]
    assert loaded.test is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"writer": None}, "no array 'writer'"),
        ({"writer": np.zeros(4, np.uint16)}, "5 images but 4 writers of images"),
        ({"writer": np.full(5, 3, np.uint16)}, "no places among its 3 writers"),
        ({"y": np.zeros(6, np.uint8)}, "5 images but 6 labels"),
        ({"x": np.zeros((5, 28), np.uint8)}, r"shape \(5, 28\)"),
    ],
)
def test_a_file_that_does_not_fit_together_is_refused(data_folder: Path, change: Any, says: str) -> None:
    write_npz(data_folder / "unipen-chars/unipen-chars.npz", **unipen_arrays(**change))

    with pytest.raises(InvalidData, match=f"unipen-chars.npz has .*{says}"):
        SOURCES["unipen"].load()


def test_a_file_that_is_no_whole_npz_file_is_refused(data_folder: Path) -> None:
    path = write_npz(data_folder / "unipen-chars/unipen-chars.npz", **unipen_arrays())
    whole = path.read_bytes()
    spoilt = bytearray(whole)
    spoilt[200:240] = b"\xff" * 40
    for content in (b"", b"<html>404</html>", whole[:-40], whole[: len(whole) // 2], bytes(spoilt)):
        path.write_bytes(content)
        with pytest.raises(InvalidData, match=r"unipen-chars.npz") as refused:
            SOURCES["unipen"].load()
        assert len(refused.value.problems) == 1
        assert refused.value.__suppress_context__ or refused.value.__context__ is None


def qmnist_table(labels: np.ndarray, writers: list[int], series: list[int]) -> np.ndarray:
    """Eight columns: class, series, writer and five that are not used."""
    table = np.zeros((len(labels), 8), np.int32)
    table[:, 0], table[:, 1], table[:, 2] = labels, series, writers
    return table


def write_mnist_writers(folder: Path, **change: np.ndarray) -> None:
    """Twelve digits by three people; four test digits by two others; the test file goes on after MNIST's digits."""
    _, labels, _, test_labels = mnist_arrays()
    write_mnist(folder / "mnist")
    tests = np.concatenate([test_labels, [7, 7, 7]])
    tables = {
        "train": qmnist_table(
            labels, [30, 30, 2001, 30, 4, 4, 4, 4, 2001, 30, 30, 30], [0, 0, 4, *[0] * 5, 4, 0, 0, 0]
        ),
        "test": qmnist_table(tests, [99, 98, 99, 98, 30, 4, 4], [4, 0, 4, 0, 0, 0, 0]),
    }
    for part, table in (tables | change).items():
        write_idx(folder / "mnist-writers" / f"qmnist-{part}-labels-idx2-int.gz", table)


def test_the_writers_of_the_training_digits_are_clients_and_their_digits_all_there_is(data_folder: Path) -> None:
    write_mnist_writers(data_folder)

    loaded = SOURCES["mnist-writers"].load()

    assert loaded.owner_names == ("employee-0004", "employee-0030", "student-2001")
    assert loaded.owners.tolist() == [1, 1, 2, 1, 0, 0, 0, 0, 2, 1, 1, 1]
    assert np.array_equal(loaded.examples.inputs[:, 0].numpy(), mnist_arrays()[0])
    assert loaded.test is None


def test_newcomers_are_further_clients_with_the_test_digits(data_folder: Path) -> None:
    write_mnist_writers(data_folder)
    without, loaded = SOURCES["mnist-writers"].load(), SOURCES["mnist-writers"].load(newcomers=True)

    assert loaded.owner_names == (*without.owner_names, "newcomer-employee-0098", "newcomer-student-0099")
    assert loaded.owners.tolist() == [*without.owners.tolist(), 4, 3, 4, 3]
    assert np.array_equal(loaded.examples.inputs[12:, 0].numpy(), mnist_arrays()[2])
    assert loaded.examples.inputs.dtype == torch.uint8
    assert loaded.test is None


def test_the_two_sets_may_be_in_different_folders(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist_writers(data_folder / "a")
    (data_folder / "b").mkdir()
    (data_folder / "a" / "mnist-writers").rename(data_folder / "b" / "qmnist")
    monkeypatch.setenv("PLURES_DATA", f"{data_folder / 'a'}:{data_folder / 'b'}")

    assert len(SOURCES["mnist-writers"].load().owner_names) == 3


def test_what_is_missing_is_told_by_name(data_folder: Path) -> None:
    with pytest.raises(InvalidData, match="'mnist' is not at hand"):
        SOURCES["mnist-writers"].load()
    write_mnist(data_folder / "mnist")
    with pytest.raises(InvalidData, match=r"'mnist-writers' is not at hand.*qmnist-train-labels-idx2-int"):
        SOURCES["mnist-writers"].load()


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (np.zeros((12, 8), np.int32), "is of other digits than those of mnist"),
        (np.zeros((11, 8), np.int32), "has 11 rows of 8 columns for 12 digits"),
        (np.zeros((12, 2), np.int32), "has 12 rows of 2 columns for 12 digits"),
        (np.zeros(12, np.int32), "has 1 dimensions, not 2"),
    ],
)
def test_label_files_of_another_set_are_refused(data_folder: Path, table: np.ndarray, says: str) -> None:
    write_mnist_writers(data_folder, train=table)

    with pytest.raises(InvalidData, match=f"qmnist-train-labels-idx2-int.gz {says}"):
        SOURCES["mnist-writers"].load()
