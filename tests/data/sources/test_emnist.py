"""EMNIST as IDX and as MATLAB files: upright images, class numbers from 0, writers where they are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import SOURCES
from tests.data.sources.image_files import noise, write_idx

COUNTS = {"train": 9, "test": 3}


def labels(form: str, count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint8) % 10 + (form == "letters")


def write_form(folder: Path, form: str) -> dict[str, np.ndarray]:
    """The four files, with images transposed as published; gives the upright images."""
    upright = {part: noise(count, 28, 28, seed=count) for part, count in COUNTS.items()}
    for part, images in upright.items():
        start = f"emnist-{form}-{part}"
        write_idx(folder / f"{start}-images-idx3-ubyte.gz", images.transpose(0, 2, 1).copy())
        write_idx(folder / f"{start}-labels-idx1-ubyte.gz", labels(form, len(images)))
    return upright


def mat_content(form: str, upright: dict[str, np.ndarray]) -> dict[str, Any]:
    """One struct `dataset` of structs, images as rows of 784 in MATLAB's order, labels and writers as columns."""
    parts = {
        part: {
            "images": images.transpose(0, 2, 1).reshape(-1, 784),
            "labels": labels(form, len(images))[:, None],
            "writers": np.array([700, 12, 12, 700, 9, 9, 9, 12, 700][: len(images)], np.uint16)[:, None],
        }
        for part, images in upright.items()
    }
    return {"dataset": parts | {"mapping": np.array([[1, 65, 97]], np.uint8)}}


@pytest.mark.parametrize(
    ("form", "classes", "ends"),
    [("letters", 26, "AZ"), ("byclass", 62, "0z"), ("balanced", 47, "0t"), ("digits", 10, "09")],
)
def test_idx_files_of_each_form_give_upright_images_and_classes_from_0(
    data_folder: Path, form: str, classes: int, ends: str
) -> None:
    upright = write_form(data_folder / "emnist", form)

    loaded = SOURCES["emnist"].load(form=form)

    assert loaded.test is not None
    assert np.array_equal(loaded.examples.inputs[:, 0].numpy(), upright["train"])
    assert np.array_equal(loaded.test.inputs[:, 0].numpy(), upright["test"])
    assert loaded.examples.targets.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert loaded.examples.inputs.dtype == torch.uint8
    assert (loaded.num_classes, loaded.class_names[0] + loaded.class_names[-1]) == (classes, ends)
    assert loaded.owners is None


def test_mat_files_give_the_same_images_and_their_writers_as_owners(data_folder: Path) -> None:
    upright = write_form(data_folder / "emnist", "letters")
    idx = SOURCES["emnist"].load()
    (data_folder / "emnist" / "matlab").mkdir()
    savemat(data_folder / "emnist" / "matlab" / "emnist-letters.mat", mat_content("letters", upright))

    loaded = SOURCES["emnist"].load()

    assert all(map(torch.equal, loaded.examples, idx.examples))
    assert all(map(torch.equal, loaded.test, idx.test))
    assert loaded.owner_names == ("9", "12", "700")
    assert loaded.owners.tolist() == [2, 1, 1, 2, 0, 0, 0, 1, 2]
    assert loaded.test_owners.tolist() == [2, 1, 1]


def test_letters_are_told_from_other_forms_by_their_first_label(data_folder: Path) -> None:
    write_form(data_folder / "emnist", "letters")
    write_idx(data_folder / "emnist" / "emnist-letters-train-labels-idx1-ubyte.gz", np.zeros(9, np.uint8))

    with pytest.raises(InvalidData, match="labels from 0 to 0, but the classes are 1 to 26"):
        SOURCES["emnist"].load()


def test_an_unknown_form_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidConfig, match=r"form is 'leters'. Did you mean 'letters'"):
        SOURCES["emnist"].load(form="leters")


def test_a_form_that_is_not_at_hand_is_refused(data_folder: Path) -> None:
    write_form(data_folder / "emnist", "letters")

    with pytest.raises(InvalidData, match="'emnist' is not at hand"):
        SOURCES["emnist"].load(form="balanced")


def whole_mat(path: Path) -> dict[str, Any]:
    return mat_content("letters", {part: noise(count, 28, 28) for part, count in COUNTS.items()})


def test_broken_mat_files_are_one_error_that_names_them(data_folder: Path) -> None:
    path = data_folder / "emnist" / "emnist-letters.mat"
    path.parent.mkdir()
    content = whole_mat(path)
    savemat(path, content, do_compression=True)
    whole = path.read_bytes()
    for broken in (b"", b"<html>404</html>", whole[:200], whole[:-30], whole[:150] + b"\xff" * 40 + whole[190:]):
        path.write_bytes(broken)
        with pytest.raises(InvalidData, match=r"emnist-letters.mat.*fetch it again") as refused:
            SOURCES["emnist"].load()
        assert len(refused.value.problems) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda parts: parts.pop("test"), "has no dataset.test with images, labels and writers"),
        (lambda parts: parts["train"].pop("writers"), "has no dataset.train"),
        (
            lambda parts: parts["train"].update(images=np.zeros((9, 700), np.uint8)),
            r"shape \(9, 700\), not \(examples, 784\)",
        ),
        (lambda parts: parts["train"].update(labels=np.ones((8, 1), np.uint8)), "9 images but 8 labels"),
        (lambda parts: parts["train"].update(writers=np.ones((8, 1), np.uint8)), "9 images but 8 writers"),
    ],
)
def test_a_mat_file_that_lacks_something_is_refused(data_folder: Path, change: Any, says: str) -> None:
    path = data_folder / "emnist" / "emnist-letters.mat"
    path.parent.mkdir()
    content = whole_mat(path)
    change(content["dataset"])
    savemat(path, content)

    with pytest.raises(InvalidData, match=says):
        SOURCES["emnist"].load()
