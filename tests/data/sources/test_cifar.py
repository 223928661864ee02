"""CIFAR-10 and CIFAR-100 as npz and as binary files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import SOURCES
from tests.data.sources.image_files import noise, write_npz


def write_binary(path: Path, count: int, *, label_bytes: int = 1, seed: int = 0) -> np.ndarray:
    """Records as published: labels, then red, green and blue planes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = noise(count, label_bytes + 3072, seed=seed)
    records[:, 0] %= 10
    records[:, label_bytes - 1] %= 10
    path.write_bytes(records.tobytes())
    return records


def write_cifar_10(folder: Path) -> np.ndarray:
    write_binary(folder / "test_batch.bin", 2, seed=9)
    return np.concatenate([write_binary(folder / f"data_batch_{number}.bin", 3, seed=number) for number in range(1, 6)])


def test_cifar_10_npz_images_come_with_channels_first(data_folder: Path) -> None:
    x, x_test = noise(6, 32, 32, 3), noise(2, 32, 32, 3, seed=1)
    labels = np.array([[3], [0], [9], [1], [1], [2]], np.uint8)  # a column, as Keras has them
    write_npz(data_folder / "cifar-10/cifar-10.npz", x_train=x, y_train=labels, x_test=x_test, y_test=labels[:2])

    loaded = SOURCES["cifar-10"].load()

    assert np.array_equal(loaded.examples.inputs.numpy(), x.transpose(0, 3, 1, 2))
    assert np.array_equal(loaded.test.inputs.numpy(), x_test.transpose(0, 3, 1, 2))
    assert loaded.examples.targets.tolist() == [3, 0, 9, 1, 1, 2]
    assert loaded.examples.inputs.dtype == torch.uint8
    assert loaded.class_names[9] == "truck"


def test_images_are_normalised_by_channel_with_the_papers_numbers(data_folder: Path) -> None:
    write_cifar_10(data_folder / "cifar-10")
    loaded = SOURCES["cifar-10"].load()

    prepared = loaded.prepare(torch.full((1, 3, 32, 32), 255, dtype=torch.uint8))

    expected = [(1 - 0.4914) / 0.2023, (1 - 0.4822) / 0.1994, (1 - 0.4465) / 0.2010]
    assert prepared[0, :, 0, 0].tolist() == pytest.approx(expected, rel=1e-6)


def test_pixels_of_cifar_10_may_stay_between_0_and_1(data_folder: Path) -> None:
    write_cifar_10(data_folder / "cifar-10")

    prepared = SOURCES["cifar-10"].load(normalised=False).prepare(torch.full((1, 3, 32, 32), 51, dtype=torch.uint8))

    assert prepared[0, :, 0, 0].tolist() == pytest.approx([0.2] * 3)


def test_binary_files_of_cifar_10_are_read_in_order(data_folder: Path) -> None:
    records = write_cifar_10(data_folder / "cifar-10" / "cifar-10-batches-bin")

    loaded = SOURCES["cifar-10"].load()

    assert (loaded.examples.num_examples, loaded.test.num_examples) == (15, 2)
    assert np.array_equal(loaded.examples.inputs.numpy().reshape(15, 3072), records[:, 1:])
    assert np.array_equal(loaded.examples.targets.numpy(), records[:, 0])


@pytest.mark.parametrize(("labels", "byte", "classes"), [("fine", 1, 100), ("coarse", 0, 20)])
def test_cifar_100_has_fine_and_coarse_labels(data_folder: Path, labels: str, byte: int, classes: int) -> None:
    records = write_binary(data_folder / "cifar-100" / "train.bin", 5, label_bytes=2)
    write_binary(data_folder / "cifar-100" / "test.bin", 2, label_bytes=2, seed=1)

    loaded = SOURCES["cifar-100"].load(labels=labels)

    assert np.array_equal(loaded.examples.targets.numpy(), records[:, byte])
    assert np.array_equal(loaded.examples.inputs.numpy().reshape(5, 3072), records[:, 2:])
    assert (len(loaded.class_names), len(set(loaded.class_names)), loaded.num_classes) == (classes,) * 3


def test_cifar_100_npz_needs_arrays_for_coarse_labels(data_folder: Path) -> None:
    x, y = noise(4, 32, 32, 3), np.arange(4)
    path = data_folder / "cifar-100/cifar-100.npz"
    write_npz(path, x_train=x, y_train=y, x_test=x, y_test=y)
    assert SOURCES["cifar-100"].load().examples.targets.tolist() == [0, 1, 2, 3]
    with pytest.raises(InvalidData, match="has no array 'coarse_train'"):
        SOURCES["cifar-100"].load(labels="coarse")

    write_npz(path, x_train=x, y_train=y, x_test=x, y_test=y, coarse_train=y[::-1], coarse_test=y)
    assert SOURCES["cifar-100"].load(labels="coarse").examples.targets.tolist() == [3, 2, 1, 0]


def test_labels_are_fine_or_coarse() -> None:
    with pytest.raises(InvalidConfig, match=r"labels is 'corse'. Did you mean 'coarse'"):
        SOURCES["cifar-100"].load(labels="corse")


def test_a_binary_set_with_a_file_missing_is_not_at_hand(data_folder: Path) -> None:
    write_cifar_10(data_folder / "cifar-10")
    (data_folder / "cifar-10/data_batch_4.bin").unlink()

    with pytest.raises(InvalidData, match="'cifar-10' is not at hand"):
        SOURCES["cifar-10"].load()


@pytest.mark.parametrize("size", [0, 3072, 3073 + 5])
def test_a_binary_file_of_another_size_is_refused(data_folder: Path, size: int) -> None:
    write_cifar_10(data_folder / "cifar-10")
    (data_folder / "cifar-10/data_batch_2.bin").write_bytes(bytes(size))

    with pytest.raises(InvalidData, match=rf"data_batch_2.bin has {size} bytes, .*multiple of 3073.*fetch it again"):
        SOURCES["cifar-10"].load()


def test_binary_labels_out_of_range_are_refused_by_file(data_folder: Path) -> None:
    write_cifar_10(data_folder / "cifar-10")
    (data_folder / "cifar-10/data_batch_3.bin").write_bytes(bytes([77]) * 3073)

    with pytest.raises(InvalidData, match=r"data_batch_3.bin has labels from 77 to 77"):
        SOURCES["cifar-10"].load()


def test_the_pickled_version_is_never_read(data_folder: Path) -> None:
    (data_folder / "cifar-10/cifar-10-batches-py").mkdir(parents=True)
    (data_folder / "cifar-10/cifar-10-batches-py/data_batch_1").write_bytes(b"cos\nsystem\n(S'false'\ntR.")

    with pytest.raises(InvalidData, match="not at hand"):
        SOURCES["cifar-10"].load()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x_train": noise(4, 32, 32, 3).astype(np.float32)}, "images of type float32"),
        ({"x_train": noise(4, 3072)}, r"shape \(4, 3072\)"),
        ({"y_train": np.arange(3)}, "4 images but 3 labels"),
        ({"y_train": np.arange(4) + 0.5}, "labels of type float64, not whole numbers"),
        ({"y_test": np.arange(4) - 1}, "labels from -1 to 2"),
        ({"y_train": np.array([1, None, 2, 3], object)}, "has Python objects in the array .y_train."),
    ],
)
def test_arrays_of_another_form_are_refused(data_folder: Path, change: dict[str, np.ndarray], says: str) -> None:
    x, y = noise(4, 32, 32, 3), np.arange(4)
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y} | change
    write_npz(data_folder / "cifar-10/cifar-10.npz", **arrays)

    with pytest.raises(InvalidData, match=f"cifar-10.npz.*{says}"):
        SOURCES["cifar-10"].load()
