"""A user's own pictures in folders of classes, or of clients and classes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import SOURCES
from tests.data.sources.image_files import noise, write_picture

pytest.importorskip("PIL", reason="Pillow is not installed")
load = SOURCES["image-folder"].load


def test_folders_are_classes_and_pictures_are_held_as_bytes(tmp_path: Path) -> None:
    pixels = [noise(6, 5, 3, seed=seed) for seed in range(3)]
    for name, image in zip(("cat/1.png", "cat/2.PNG", "ant/9.png"), pixels, strict=True):
        write_picture(tmp_path / name, image)
    (tmp_path / "cat/notes.txt").write_text("no picture", encoding="utf-8")

    loaded = load(path=tmp_path)

    assert loaded.class_names == ("ant", "cat")
    assert loaded.examples.targets.tolist() == [0, 1, 1]
    assert loaded.examples.inputs.dtype == torch.uint8
    expected = np.stack([pixels[2], pixels[0], pixels[1]]).transpose(0, 3, 1, 2)
    assert np.array_equal(loaded.examples.inputs.numpy(), expected)
    assert loaded.owners is None


def test_folders_of_clients_are_natural_clients(tmp_path: Path) -> None:
    for name in ("eve/cat/1.png", "bob/dog/1.png", "bob/cat/2.png"):
        write_picture(tmp_path / name, noise(4, 4))

    loaded = load(path=str(tmp_path), by="client", grey=True)

    assert loaded.examples.inputs.shape == (3, 1, 4, 4)
    assert loaded.owner_names == ("bob", "eve")
    assert loaded.owners.tolist() == [0, 0, 1]
    assert [loaded.class_names[label] for label in loaded.examples.targets] == ["cat", "dog", "cat"]


def test_a_size_keeps_proportions_and_takes_the_centre(tmp_path: Path) -> None:
    wide = np.zeros((10, 30), np.uint8)
    wide[:, 10:20] = 200
    write_picture(tmp_path / "a/wide.png", wide)
    write_picture(tmp_path / "a/tall.png", wide.T.copy())
    write_picture(tmp_path / "a/large.png", np.full((40, 40), 200, np.uint8))

    loaded = load(path=tmp_path, size=10, grey=True)

    assert loaded.examples.inputs.shape == (3, 1, 10, 10)
    assert bool((loaded.examples.inputs == 200).all())


def test_a_path_may_be_a_folder_of_plures_data(data_folder: Path) -> None:
    write_picture(data_folder / "mine/a/1.png", noise(3, 3))

    assert load(path="mine").examples.num_examples == 1


def test_pictures_of_different_sizes_need_a_size(tmp_path: Path) -> None:
    write_picture(tmp_path / "a/1.png", noise(4, 4))
    write_picture(tmp_path / "a/2.png", noise(4, 6))

    with pytest.raises(InvalidData, match=r"2.png has 6x4 pixels, but .*1.png has 4x4. Give a size"):
        load(path=tmp_path)


def test_a_broken_picture_is_one_error_that_names_it(tmp_path: Path) -> None:
    path = write_picture(tmp_path / "a/1.png", noise(64, 64))
    whole = path.read_bytes()
    for content in (b"", b"text", whole[:100], whole[:-50], whole[:40] + b"\xff" * 8 + whole[48:]):
        path.write_bytes(content)
        with pytest.raises(InvalidData, match=r"1.png"):
            load(path=tmp_path)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"path": "absent"}, InvalidData, "There is no absent"),
        ({"path": 3}, InvalidConfig, "path is 3"),
        ({"path": ".", "by": "clients"}, InvalidConfig, "Did you mean 'client'"),
        ({"path": ".", "size": 0}, InvalidConfig, "size is 0"),
        ({"path": "."}, InvalidData, "has no pictures in folders <class>"),
        ({"path": ".", "by": "client"}, InvalidData, "has no pictures in folders <client>/<class>"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], error: type[Exception], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=says):
        load(**options)


def test_without_pillow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_picture(tmp_path / "a/1.png", noise(4, 4))
    monkeypatch.setitem(sys.modules, "PIL.Image", None)

    with pytest.raises(InvalidConfig, match=r"needs the package Pillow: pip install 'plures\[data\]'"):
        load(path=tmp_path)
