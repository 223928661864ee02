"""MNIST by writer: who wrote each digit is told by the label files of QMNIST."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from plures.core.types import Batch
from plures.data.datasets import DataSet
from plures.data.sources.finding import find_form
from plures.data.sources.idx import read_idx
from plures.data.sources.images import number_owners
from plures.data.sources.mnist import mnist
from plures.data.sources.reading import Array, wrong
from plures.data.sources.registry import source

CLASS, SERIES, WRITER = 0, 1, 2
"""Columns of the label files; others are of no use here."""

STUDENTS = 4
"""The series of high-school students; series 0, and what else there is, are employees of the Census Bureau."""


@source(
    "mnist-writers",
    about="MNIST by writer, 1x28x28, ten classes; clients are 539 writers, and 297 others as newcomers",
    files=(
        "what mnist needs: mnist/*-ubyte* or mnist/mnist.npz",
        "mnist-writers/qmnist-train-labels-idx2-int* and the same with test, or both in qmnist/*",
    ),
)
def mnist_writers(newcomers: bool = False) -> DataSet:
    """The 60,000 training digits by writer; a client's own digits are split into train, validation and test.

    The 10,000 test digits are by other people, so they test no writer of the training digits and are left out;
    with newcomers=True these people are further clients, with the last numbers and names "newcomer-...".
    """
    whole = mnist()
    parts = [f"qmnist-{part}-labels?idx2-int*" for part in ("train", "test")]
    folders = {name: tuple(f"{name}/{part}" for part in parts) for name in ("mnist-writers", "qmnist")}
    _, paths = find_form("mnist-writers", folders)
    examples, (names, (owners,)) = whole.examples, number_owners(_writers(paths[0], whole.examples))
    if newcomers and whole.test is not None:
        others, (their,) = number_owners(_writers(paths[1], whole.test))
        examples = Batch(*(torch.cat(pair) for pair in zip(examples, whole.test, strict=True)))
        owners = np.concatenate([owners, their + len(names)])
        names = (*names, *(f"newcomer-{name}" for name in others))
    return replace(whole, name="mnist-writers", examples=examples, test=None, owners=owners, owner_names=names)


def _writers(path: Path, digits: Batch) -> Array:
    """The writer of each digit, as in "student-2100"; the test file of QMNIST goes on after MNIST's digits."""
    table = read_idx(path, ndim=2)
    if table.shape[1] <= WRITER or len(table) < digits.num_examples:
        raise wrong(path, f"has {len(table)} rows of {table.shape[1]} columns for {digits.num_examples} digits")
    table = table[: digits.num_examples]
    if not np.array_equal(table[:, CLASS], digits.targets.numpy()):
        raise wrong(path, "is of other digits than those of mnist", "Use the MNIST and QMNIST files as published")
    kinds = np.where(table[:, SERIES] == STUDENTS, "student-", "employee-")
    return np.char.add(kinds, [f"{writer:04d}" for writer in table[:, WRITER]])
