"""Windows of motion by person, those of one recording a group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidData
from plures.data import SOURCES, check_federation, natural, partition
from plures.data.sources.finding import at_hand

FILE = "uci-har/uci-har.npz"


def arrays(**changes: Any) -> dict[str, Any]:
    """Two people with two recordings each, of three windows."""
    known = {
        "x": np.random.default_rng(0).normal(size=(12, 6, 128)).astype(np.float16),
        "y": (np.arange(12) // 3 % 2).astype(np.uint8),
        "subject": np.repeat([3, 11], 6).astype(np.uint8),
        "recording": np.repeat([40, 7, 8, 9], 3).astype(np.uint16),
        "classes": np.array(["WALKING", "SITTING"]),
        "channels": np.array(["ax", "ay", "az", "gx", "gy", "gz"]),
    }
    return {name: value for name, value in (known | changes).items() if value is not None}


def write(folder: Path, **changes: Any) -> Path:
    path = folder / FILE
    path.parent.mkdir()
    np.savez_compressed(path, **arrays(**changes))
    return path


def test_people_are_clients_and_recordings_are_groups(data_folder: Path) -> None:
    write(data_folder)
    dataset = SOURCES["uci-har"].load()
    assert dataset.owner_names == ("3", "11")
    assert dataset.owners is not None
    assert dataset.owners.tolist() == [0] * 6 + [1] * 6
    assert dataset.groups is not None
    # One number for each recording, as they come in the order of their numbers 7, 8, 9, 40.
    assert dataset.groups.tolist() == [3] * 3 + [0] * 3 + [1] * 3 + [2] * 3
    assert dataset.class_names == ("WALKING", "SITTING")
    assert dataset.labels.tolist() == [0, 0, 0, 1, 1, 1] * 2


def test_windows_are_held_in_half_precision_and_prepared_to_float32(data_folder: Path) -> None:
    write(data_folder)
    dataset = SOURCES["uci-har"].load()
    assert dataset.examples.inputs.dtype == torch.float16
    assert dataset.prepare is not None
    prepared = dataset.prepare(dataset.examples.inputs)
    assert prepared.dtype == torch.float32
    assert np.array_equal(prepared.numpy(), arrays()["x"].astype(np.float32))


def test_a_split_by_group_keeps_recordings_whole(data_folder: Path) -> None:
    write(data_folder)
    dataset = SOURCES["uci-har"].load()
    assert dataset.groups is not None
    federation = partition(dataset, natural(), seed=0, split=(0.5, 0.0, 0.5), split_by="group")
    check_federation(federation)
    for own in federation.population.indices:  # type: ignore[attr-defined]
        assert not set(dataset.groups[own.train]) & set(dataset.groups[own.test])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recording": None}, "has no array 'recording'"),
        ({"x": np.zeros((12, 128), np.float16)}, r"has an x of type float16 and shape \(12, 128\)"),
        ({"x": np.full((12, 6, 128), np.nan, np.float16)}, "NaN or infinite numbers in x"),
        ({"y": np.zeros(11, np.uint8)}, r"a 'y' of type uint8 and shape \(11,\)"),
        ({"subject": np.array(["ann"] * 12)}, "a 'subject' of type <U3"),
        ({"y": np.full(12, 2, np.uint8)}, "has labels from 2 to 2, but the classes are 0 to 1"),
    ],
)
def test_a_broken_file_is_one_error_that_names_it(data_folder: Path, changes: dict[str, Any], message: str) -> None:
    path = write(data_folder, **changes)
    with pytest.raises(InvalidData, match=message) as caught:
        SOURCES["uci-har"].load()
    assert len(caught.value.problems) == 1
    assert str(path) in str(caught.value)


def test_a_file_that_is_cut_off_is_one_error(data_folder: Path) -> None:
    path = write(data_folder)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InvalidData, match=f"Cannot read {path}"):
        SOURCES["uci-har"].load()


@pytest.mark.data
def test_uci_har_has_its_windows_people_and_activities() -> None:
    if at_hand(SOURCES["uci-har"]) != "yes":
        pytest.skip("uci-har is not in PLURES_DATA")
    dataset = SOURCES["uci-har"].load()
    assert dataset.examples.inputs.shape == (10_299, 6, 128)
    assert np.bincount(dataset.labels).tolist() == [1722, 1544, 1406, 1777, 1906, 1944]
    assert dataset.owners is not None
    sizes = np.bincount(dataset.owners)
    assert (len(sizes), sizes.min(), sizes.max()) == (30, 281, 409)
    assert dataset.groups is not None
    # A recording is of one person and one activity, and its windows follow one another.
    for values in (dataset.owners, dataset.labels):
        assert len({*zip(dataset.groups.tolist(), values.tolist(), strict=True)}) == dataset.groups.max() + 1
    federation = partition(dataset, natural(), seed=0, split_by="group")
    check_federation(federation)


@pytest.mark.data
def test_windows_overlap_by_half_within_recordings_only() -> None:
    if at_hand(SOURCES["uci-har"]) != "yes":
        pytest.skip("uci-har is not in PLURES_DATA")
    dataset = SOURCES["uci-har"].load()
    assert dataset.groups is not None
    windows = dataset.examples.inputs.numpy()
    second_halves = {window[:, 64:].tobytes(): place for place, window in enumerate(windows)}
    followed = [(second_halves.get(window[:, :64].tobytes()), place) for place, window in enumerate(windows)]
    pairs = [(before, place) for before, place in followed if before is not None]
    assert len(pairs) == 9442
    assert all(dataset.groups[before] == dataset.groups[place] for before, place in pairs)
