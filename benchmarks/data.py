"""The examples of all workloads: Fashion-MNIST where it is at hand, otherwise noise of the same shape."""

from __future__ import annotations

from functools import lru_cache

import torch

from plures.core.errors import InvalidData
from plures.core.seeds import generator
from plures.core.types import Batch
from plures.data import DataSet, Federation, Scaled, by_class, find_source, partition

SEED = 0
CLASSES, SHAPE = 10, (1, 28, 28)
CLASSES_PER_CLIENT = 2
TRAIN, TEST = 60_000, 10_000


@lru_cache(maxsize=1)
def dataset() -> DataSet:
    """Fashion-MNIST from the folders of PLURES_DATA; `name` tells what was found."""
    try:
        return find_source("fashion-mnist").load()
    except InvalidData:
        pixels, test = noise(TRAIN, "train"), noise(TEST, "test")
        return DataSet(name="synthetic", examples=pixels, test=test, prepare=Scaled())


def noise(num_examples: int, purpose: str) -> Batch:
    """Bytes and labels at random, as many and as large as those of Fashion-MNIST."""
    draws = generator(SEED, "benchmark", purpose)
    pixels = torch.randint(256, (num_examples, *SHAPE), generator=draws, dtype=torch.uint8)
    return Batch(pixels, torch.arange(num_examples) % CLASSES)


@lru_cache(maxsize=8)
def federation(num_clients: int, examples_each: int, tests_each: int) -> Federation:
    """Two classes per client, dealt round robin; on average so many examples for each client, none for validation."""
    whole = dataset()
    assert whole.test is not None
    test = some(whole.test, num_clients * tests_each, "tests")
    given = DataSet(
        name=whole.name,
        examples=some(whole.examples, num_clients * examples_each, "examples"),
        test=test,
        class_names=tuple(map(str, range(CLASSES))),
        prepare=whole.prepare,
    )
    return partition(given, by_class(num_clients, CLASSES_PER_CLIENT), seed=SEED, split=(1.0, 0.0, 0.0))


def some(batch: Batch, wanted: int, purpose: str) -> Batch:
    """So many of the examples at random; all of them as they stand."""
    if wanted >= batch.num_examples:
        return batch
    places = torch.randperm(batch.num_examples, generator=generator(SEED, "benchmark", purpose))[:wanted]
    return Batch(batch.inputs[places], batch.targets[places])
