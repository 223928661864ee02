"""MNIST and Fashion-MNIST: bytes as they are in the files, and one plain error for files that are not whole."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidData
from plures.data import SOURCES, by_class, partition
from plures.data.sources.idx import read_idx
from tests.data.sources.image_files import (
    MNIST_PARTS,
    idx_bytes,
    mnist_arrays,
    noise,
    write_idx,
    write_mnist,
    write_npz,
)

NAMES = ["mnist", "fashion-mnist"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_images_are_held_as_the_bytes_of_the_files(data_folder: Path, name: str, ending: str) -> None:
    write_mnist(data_folder / name, ending=ending)
    images, labels, test_images, test_labels = mnist_arrays()

    loaded = SOURCES[name].load()

    assert loaded.test is not None
    for batch, pixels, numbers in [(loaded.examples, images, labels), (loaded.test, test_images, test_labels)]:
        assert batch.inputs.dtype == torch.uint8
        assert np.array_equal(batch.inputs.numpy(), pixels[:, None])
        assert batch.targets.dtype == torch.int64
        assert np.array_equal(batch.targets.numpy(), numbers)
    assert (loaded.num_classes, loaded.owners) == (10, None)


def test_pixels_are_prepared_from_0_to_1_without_mean_and_deviation(data_folder: Path) -> None:
    write_mnist(data_folder / "mnist")
    loaded = SOURCES["mnist"].load()

    assert loaded.prepare is not None
    prepared = loaded.prepare(loaded.examples.inputs)

    assert torch.equal(prepared, loaded.examples.inputs.to(torch.float32) / 255)


def test_names_with_a_dot_and_folders_within_are_found(data_folder: Path) -> None:
    for part, values in zip(MNIST_PARTS, mnist_arrays(), strict=True):
        write_idx(data_folder / "mnist" / "raw" / part.replace("s-idx", "s.idx"), values)

    assert SOURCES["mnist"].load().examples.num_examples == 12


@pytest.mark.parametrize("name", NAMES)
def test_an_npz_file_gives_the_same_as_idx_files(data_folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(data_folder / "idx" / name)
    x, y, x_test, y_test = mnist_arrays()
    write_npz(data_folder / "npz" / name / f"{name}.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)

    loaded = []
    for form in ("idx", "npz"):
        monkeypatch.setenv("PLURES_DATA", str(data_folder / form))
        loaded.append(SOURCES[name].load())

    assert all(map(torch.equal, loaded[0].examples, loaded[1].examples))
    assert all(map(torch.equal, loaded[0].test, loaded[1].test))


def test_the_first_folder_of_plures_data_that_has_all_files_is_read(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, count in (("first", 10), ("second", 20)):
        write_mnist(data_folder / name / "mnist", mnist_arrays(count))
    (data_folder / "first" / "mnist" / f"{MNIST_PARTS[3]}.gz").unlink()
    monkeypatch.setenv("PLURES_DATA", os.pathsep.join(str(data_folder / name) for name in ("none", "first", "second")))

    assert SOURCES["mnist"].load().examples.num_examples == 20


def test_a_set_that_is_not_at_hand_is_one_error_that_says_what_to_put_where(data_folder: Path) -> None:
    with pytest.raises(
        InvalidData, match=r"'mnist' is not at hand.*PLURES_DATA: mnist/\*-ubyte.*plures data get mnist"
    ):
        SOURCES["mnist"].load()


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def unpack_short(path: Path) -> None:
    path.write_bytes(gzip.decompress(path.read_bytes())[:-3])


def lengthen(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"more"))


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def text(path: Path) -> None:
    path.write_text("<html>404</html>", encoding="utf-8")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def header_only(path: Path) -> None:
    path.write_bytes(idx_bytes(noise(2, 28, 28))[:9])


def no_examples(path: Path) -> None:
    write_idx(path, noise(0, 28, 28))


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [
    (shorten, "Compressed file ended"),
    (unpack_short, "shorter than its header says"),
    (lengthen, "longer than its header says"),
    (spoil, "Cannot read"),
    (text, "is no IDX file"),
    (empty, "is no IDX file: it begins with nothing"),
    (header_only, "Cannot read"),
    (no_examples, "holds no examples"),
    (folder, "Is a directory"),
]


@pytest.mark.parametrize(("damage", "says"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_a_broken_file_is_one_error_that_names_it_and_what_to_do(
    data_folder: Path, damage: Callable[[Path], None], says: str
) -> None:
    write_mnist(data_folder / "mnist")
    path = data_folder / "mnist" / f"{MNIST_PARTS[0]}.gz"
    damage(path)

    with pytest.raises(InvalidData) as refused:
        SOURCES["mnist"].load()

    assert len(refused.value.problems) == 1
    assert str(path) in str(refused.value)
    assert says in str(refused.value)
    assert "fetch it again" in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_labels_in_place_of_images_are_refused(data_folder: Path) -> None:
    write_mnist(data_folder / "mnist")
    write_idx(data_folder / "mnist" / f"{MNIST_PARTS[0]}.gz", mnist_arrays()[1])

    with pytest.raises(InvalidData, match=r"train-images.* has 1 dimensions, not 3"):
        SOURCES["mnist"].load()


def test_a_label_file_of_another_length_is_refused_by_name(data_folder: Path) -> None:
    write_mnist(data_folder / "mnist")
    path = write_idx(data_folder / "mnist" / f"{MNIST_PARTS[1]}.gz", np.zeros(11, np.uint8))

    with pytest.raises(InvalidData, match="has 11 labels for the 12 images") as refused:
        SOURCES["mnist"].load()
    assert str(refused.value).startswith(str(path))


def test_a_label_out_of_range_is_refused(data_folder: Path) -> None:
    arrays = mnist_arrays()
    arrays[3][0] = 12
    write_mnist(data_folder / "mnist", arrays)

    with pytest.raises(InvalidData, match=r"t10k-labels.* has labels from 1 to 12, but the classes are 0 to 9"):
        SOURCES["mnist"].load()


def test_idx_numbers_of_four_bytes_are_read_in_their_order(tmp_path: Path) -> None:
    values = np.array([[1, -2, 70000], [4, 5, 2**31 - 1]], dtype=np.int32)

    read = read_idx(write_idx(tmp_path / "x.gz", values), ndim=2)

    assert np.array_equal(read, values)
    assert read.dtype.isnative
    assert read.flags.writeable


def test_clients_together_hold_little_more_than_the_bytes_of_the_set(data_folder: Path) -> None:
    write_mnist(data_folder / "mnist", mnist_arrays(60_000, 10_000), ending="")
    loaded = SOURCES["mnist"].load()
    raw = sum(tensor.nbytes for batch in (loaded.examples, loaded.test) for tensor in batch)

    federation = partition(loaded, by_class(100, 2), seed=0)
    for client in range(100):
        batch = federation.client(client).train
        assert batch.inputs.dtype == torch.float32

    positions = sum(part.nbytes for client in federation.population.indices for part in client)
    assert raw == 70_000 * (784 + 8)
    assert raw + positions + federation.cache.held_bytes < 1.3 * raw
