"""The real sets of images, where PLURES_DATA has them: the counts that their makers published."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from plures.data import SOURCES, DataSet
from plures.data.sources.finding import at_hand

pytestmark = pytest.mark.data


@cache
def loaded(name: str, **options: Any) -> DataSet:
    if at_hand(SOURCES[name]) != "yes":
        pytest.skip(f"{name} is not in PLURES_DATA")
    return SOURCES[name].load(**options)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_mnist_and_fashion_mnist_have_60000_and_10000_images_of_ten_classes(name: str) -> None:
    dataset = loaded(name)

    assert dataset.test is not None
    assert dataset.examples.inputs.shape == (60_000, 1, 28, 28)
    assert dataset.test.inputs.shape == (10_000, 1, 28, 28)
    assert dataset.examples.inputs.dtype == dataset.test.inputs.dtype == torch.uint8
    counts = torch.bincount(dataset.examples.targets).tolist()
    first = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert counts == (first if name == "mnist" else [6000] * 10)


def test_cifar_10_has_5000_and_1000_images_of_each_class_with_the_usual_means() -> None:
    dataset = loaded("cifar-10")

    assert dataset.test is not None
    assert dataset.examples.inputs.shape == (50_000, 3, 32, 32)
    assert torch.bincount(dataset.examples.targets).tolist() == [5000] * 10
    assert torch.bincount(dataset.test.targets).tolist() == [1000] * 10
    means = [float(dataset.examples.inputs[:, channel].double().mean()) / 255 for channel in range(3)]
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)


def test_omniglot_has_50_alphabets_and_1623_characters_of_20_drawings() -> None:
    dataset = loaded("omniglot")

    assert dataset.test is not None
    assert len(dataset.owner_names) == 50
    assert len(set(dataset.class_names)) == dataset.num_classes == 1623
    assert torch.bincount(dataset.examples.targets).tolist() == [15] * 1623
    assert torch.bincount(dataset.test.targets).tolist() == [5] * 1623
    characters = [
        len(np.unique(dataset.labels[dataset.owners == owner])) for owner in range(50) if dataset.owners is not None
    ]
    assert (min(characters), max(characters)) == (14, 55)
    # Ink is bright and covers little: most of a drawing is paper.
    assert 0.02 < float((dataset.examples.inputs > 127).float().mean()) < 0.2


def test_every_drawer_of_omniglot_is_trained_and_tested() -> None:
    dataset = loaded("omniglot", clients="drawer")

    assert dataset.owners is not None
    assert dataset.test_owners is not None
    assert len(dataset.owner_names) == 1000
    assert np.bincount(dataset.owners, minlength=1000).min() >= 10
    assert np.bincount(dataset.test_owners, minlength=1000).min() >= 3


def test_unipen_has_105382_characters_of_62_classes_by_317_writers() -> None:
    dataset = loaded("unipen")

    assert dataset.owners is not None
    assert dataset.examples.inputs.shape == (105_382, 1, 28, 28)
    assert dataset.num_classes == len(dataset.examples.targets.unique()) == 62
    sizes = np.bincount(dataset.owners)
    assert (len(sizes), sizes.min(), sizes.max(), np.median(sizes)) == (317, 20, 4885, 164)


def test_mnist_has_539_writers_to_train_and_297_others_none_of_whom_is_in_both() -> None:
    dataset, both = loaded("mnist-writers"), loaded("mnist-writers", newcomers=True)

    assert dataset.owners is not None
    assert both.owners is not None
    sizes = np.bincount(dataset.owners)
    assert (len(dataset.owner_names), sizes.min(), sizes.max(), np.median(sizes)) == (539, 19, 131, 116)
    newcomers = both.owner_names[539:]
    assert both.owner_names[:539] == dataset.owner_names
    assert len(newcomers) == 297
    assert not {name.removeprefix("newcomer-") for name in newcomers} & set(dataset.owner_names)
    sizes = np.bincount(both.owners)[539:]
    assert (sizes.sum(), sizes.min(), sizes.max(), np.median(sizes)) == (10_000, 8, 130, 21)


GROWTH = """
import re
from dataclasses import replace
from pathlib import Path

import torch
from plures.core.types import Batch
from plures.data import SOURCES, Scaled, by_class, partition

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

def touch(dataset, num_clients):
    federation = partition(dataset, by_class(num_clients, 2), seed=0)
    for client in range(num_clients):
        federation.client(client).train.inputs.sum()
    return federation

digits = SOURCES["digits"].load()
held = Batch((digits.examples.inputs * 255).to(torch.uint8), digits.examples.targets)
touch(replace(digits, examples=held, prepare=Scaled()), 10)  # from here on no code is loaded any more
before = resident()
dataset = SOURCES["mnist"].load()
raw = sum(tensor.nbytes for batch in (dataset.examples, dataset.test) for tensor in batch)
federation = touch(dataset, 100)
print((resident() - before) / raw)
"""

PROMPT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
"""What is freed goes back to the system at once, so that only what is held is measured."""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_grows_by_less_than_1_3_times_the_set_when_every_client_is_touched() -> None:
    loaded("mnist")
    command = [sys.executable, "-c", GROWTH]
    done = subprocess.run(command, env=os.environ | PROMPT, capture_output=True, encoding="utf-8", check=True)

    assert float(done.stdout) < 1.3
