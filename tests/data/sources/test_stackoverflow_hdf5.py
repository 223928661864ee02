"""StackOverflow in TensorFlow Federated's form: examples/USER/tokens, one HDF5 file for train and one for test."""

from __future__ import annotations

from pathlib import Path

import pytest

from plures.core.errors import InvalidData
from plures.data import SOURCES, natural, partition

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

TRAIN = {"00001": [b"how do i sort a list ?", b"use sorted ( )", b" "], "00002": [b"why", b"because"]}
TEST = {"00001": [b"how do i test this ?"], "00002": [b"so"]}


def write(folder: Path, name: str, users: dict[str, list[bytes]], key: str = "tokens") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / name, "w") as file:
        for user, texts in users.items():
            group = file.create_group(f"examples/{user}")
            group.create_dataset(key, data=texts)
            group.create_dataset("type", data=[b"question"] * len(texts))
    return folder / name


def test_texts_are_read_by_user_with_their_own_words(data_folder: Path) -> None:
    write(data_folder / "stackoverflow", "stackoverflow_train.h5", TRAIN)
    write(data_folder / "stackoverflow", "stackoverflow_test.h5", TEST)
    dataset = SOURCES["stackoverflow"].load(min_train=2, min_test=1, vocabulary=50)
    assert dataset.owner_names == ("00001", "00002")
    federation = partition(dataset, natural(min_examples=1), seed=0, split=(0.5, 0.5, 0.0))
    assert federation.num_clients == 2
    data = federation.client(0)
    assert (data.train.num_examples + data.validation.num_examples, data.test.num_examples) == (2, 1)
    assert data.train.inputs.shape == (1, 20)


def test_a_file_of_another_form_is_one_error_that_names_it(data_folder: Path) -> None:
    write(data_folder / "stackoverflow", "stackoverflow_test.h5", TEST)
    path = write(data_folder / "stackoverflow", "stackoverflow_train.h5", TRAIN, key="words")
    with pytest.raises(InvalidData, match=str(path)):
        SOURCES["stackoverflow"].load()
    path.write_bytes(b"no HDF5")
    with pytest.raises(InvalidData, match=str(path)):
        SOURCES["stackoverflow"].load()
