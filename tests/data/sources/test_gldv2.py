"""Google Landmarks v2: only photographs of the chosen clients are read, half of each client's are for testing."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import SOURCES
from tests.data.sources.image_files import write_picture

pytest.importorskip("PIL", reason="Pillow is not installed")
load = SOURCES["gldv2"].load
SIZES = {"7": 6, "19": 5, "3": 2}
SMALL = {"min_examples": 4, "size": 8, "resize": 10}


def photo_name(user: str, number: int) -> str:
    return f"{int(user):04x}{number:012x}"


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def rows_of(sizes: dict[str, int], start: int = 0) -> list[dict[str, Any]]:
    return [
        {"user_id": user, "image_id": photo_name(user, start + number), "class": (int(user) + number) % 30}
        for user, count in sizes.items()
        for number in range(count)
    ]


def write_photos(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Each of one grey that tells its class, as <a>/<b>/<c>/<abc...>.jpg."""
    for row in rows:
        name = row["image_id"]
        pixels = np.full((12, 15, 3), 8 * row["class"], np.uint8)
        write_picture(folder / name[0] / name[1] / name[2] / f"{name}.jpg", pixels)


@pytest.fixture
def folder(data_folder: Path) -> Path:
    rows = rows_of(SIZES)
    write_csv(data_folder / "gldv2" / "federated_train.csv", rows)
    write_photos(data_folder / "gldv2" / "train", [row for row in rows if row["user_id"] != "3"])
    return data_folder / "gldv2"


def test_half_of_each_clients_photographs_are_for_testing(folder: Path) -> None:
    loaded = load(**SMALL)

    assert loaded.owner_names == ("19", "7")
    assert Counter(loaded.owners.tolist()) == {0: 3, 1: 3}
    assert Counter(loaded.test_owners.tolist()) == {0: 2, 1: 3}
    assert loaded.examples.inputs.shape == (6, 3, 8, 8)
    assert loaded.examples.inputs.dtype == torch.uint8
    assert loaded.num_classes == 24  # the largest class of the whole table is 19 + 4


def test_photographs_keep_their_labels_and_none_is_on_both_sides(folder: Path) -> None:
    loaded = load(**SMALL)

    for batch, owners in ((loaded.examples, loaded.owners), (loaded.test, loaded.test_owners)):
        greys = batch.inputs.float().mean(dim=(1, 2, 3)) / 8
        assert torch.equal(greys.round().long(), batch.targets)
        assert len(owners) == batch.num_examples
    seen = [
        (owner, label)
        for batch, owners in ((loaded.examples, loaded.owners), (loaded.test, loaded.test_owners))
        for owner, label in zip(owners.tolist(), batch.targets.tolist(), strict=True)
    ]
    assert len(set(seen)) == 11


def test_a_sample_of_clients_is_read_alone(folder: Path) -> None:
    chosen = {load(**SMALL, sample_clients=1, seed=seed).owner_names for seed in range(8)}

    assert chosen == {("7",), ("19",)}
    loaded = load(**SMALL, sample_clients=1)
    other = ({"7", "19"} - set(loaded.owner_names)).pop()
    for number in range(SIZES[other]):
        name = photo_name(other, number)
        (folder / "train" / name[0] / name[1] / name[2] / f"{name}.jpg").unlink()
    assert load(**SMALL, sample_clients=1).owner_names == loaded.owner_names


def test_a_test_table_with_users_replaces_the_halves(folder: Path) -> None:
    tests = rows_of({"7": 2, "19": 1, "3": 4}, start=50)
    write_csv(folder / "test.csv", tests)
    write_photos(folder / "images", tests)

    loaded = load(**SMALL)

    assert (loaded.examples.num_examples, loaded.test.num_examples) == (11, 3)
    assert sorted(loaded.test_owners.tolist()) == [0, 1, 1]


def test_the_published_test_table_without_users_is_not_used(folder: Path) -> None:
    write_csv(folder / "test.csv", [{"image_id": "ffff", "class": 1}])

    assert load(**SMALL).test.num_examples == 5


def test_training_flips_images_at_random(folder: Path) -> None:
    loaded = load(**SMALL)
    inputs = torch.rand(50, 3, 8, 8)

    changed = loaded.augment(inputs, torch.Generator().manual_seed(0))

    flipped = (changed == inputs.flip(3)).all(dim=(1, 2, 3))
    same = (changed == inputs).all(dim=(1, 2, 3))
    assert bool((flipped ^ same).all())


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"min_examples": 100}, InvalidData, "no client with 100 photographs. Lower min_examples"),
        ({"min_examples": 1}, InvalidConfig, "min_examples is 1"),
        ({"resize": 4}, InvalidConfig, "resize is 4, less than size"),
        ({"sample_clients": 3}, InvalidConfig, "only 2 clients have 4"),
        ({"sample_clients": 0}, InvalidConfig, "sample_clients is 0"),
        ({"min_examples": 2}, InvalidData, "2 of 13 photographs .* not at hand: put 0/0/0/0003"),
    ],
)
def test_what_cannot_be_had_is_refused(folder: Path, options: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        load(**(SMALL | options))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "has no column 'user_id' or no rows"),
        (b"user_id,image_id\n1,abc\n", "has no column 'class'"),
        (b"user_id,image_id,class\n1,abc,many\n", "Each row needs"),
        (b"user_id,image_id,class\n1,abc\n", "Each row needs"),
        (b"\xff\xfe\x00", "Cannot read"),
    ],
)
def test_a_table_of_another_form_is_one_error(folder: Path, content: bytes, says: str) -> None:
    (folder / "federated_train.csv").write_bytes(content)

    with pytest.raises(InvalidData, match=says) as refused:
        load(**SMALL)
    assert "federated_train.csv" in str(refused.value)
