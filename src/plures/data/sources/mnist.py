"""MNIST and Fashion-MNIST: the four usual IDX files, or one npz file."""

from __future__ import annotations

from pathlib import Path

from plures.core.types import Batch
from plures.data.datasets import DataSet, Scaled
from plures.data.sources.finding import Forms, find_form
from plures.data.sources.idx import read_idx
from plures.data.sources.images import LIKE_THE_OTHERS, image_batch
from plures.data.sources.reading import read_npz, wrong
from plures.data.sources.registry import source

CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)

NPZ_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


@source(
    "mnist",
    about="60,000 handwritten digits and 10,000 to test, 1x28x28, ten classes; no natural clients",
    files=("mnist/*-ubyte* (the four files as published, packed or not), or mnist/mnist.npz",),
    hub="ylecun/mnist",
)
def mnist() -> DataSet:
    """Pixels from 0 to 1, with no mean and std, as in the papers."""
    return _load("mnist", tuple("0123456789"))


@source(
    "fashion-mnist",
    about="60,000 pictures of clothes and 10,000 to test, 1x28x28, ten classes; no natural clients",
    files=("fashion-mnist/*-ubyte* (the four files as published, packed or not), or fashion-mnist/fashion-mnist.npz",),
    hub="zalando-datasets/fashion_mnist",
)
def fashion_mnist() -> DataSet:
    """Pixels from 0 to 1, with no mean and std, as in the papers."""
    return _load("fashion-mnist", CLOTHES)


def _load(name: str, class_names: tuple[str, ...]) -> DataSet:
    # Some distributions write train-images.idx3-ubyte, some put the files into a folder "raw".
    parts = ("train-images?idx3", "train-labels?idx1", "t10k-images?idx3", "t10k-labels?idx1")
    forms: Forms = {"idx": tuple(f"{name}/**/{part}-ubyte*" for part in parts), "npz": (f"{name}/{name}.npz",)}
    form, paths = find_form(name, forms)
    if form == "npz":
        train, test = npz_batches(paths[0], len(class_names))
    else:
        train, test = (idx_batch(*paths[at : at + 2], num_classes=len(class_names)) for at in (0, 2))
    return DataSet(name=name, examples=train, test=test, class_names=class_names, prepare=Scaled())


def idx_batch(images: Path, labels: Path, *, num_classes: int, first_label: int = 0) -> Batch:
    """Examples from a file of images and one of labels."""
    pixels, numbers = read_idx(images, ndim=3), read_idx(labels, ndim=1)
    if len(pixels) != len(numbers):
        raise wrong(labels, f"has {len(numbers)} labels for the {len(pixels)} images of {images}", LIKE_THE_OTHERS)
    return image_batch(labels, pixels, numbers, num_classes, first_label)


def npz_batches(path: Path, num_classes: int) -> tuple[Batch, Batch]:
    """Train and test examples of a file with x_train, y_train, x_test and y_test."""
    arrays = read_npz(path, *NPZ_ARRAYS)
    train = image_batch(path, arrays["x_train"], arrays["y_train"], num_classes)
    return train, image_batch(path, arrays["x_test"], arrays["y_test"], num_classes)
