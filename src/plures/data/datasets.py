"""A data set with all that is known of it: whose each example is, what belongs together, how to prepare it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from plures.core.errors import InvalidData
from plures.core.goals import CLASSIFICATION, Goal
from plures.core.task import Augment
from plures.core.types import Batch
from plures.data.client import Prepare
from plures.data.dealing import Indices

Fit = Callable[["DataSet", Indices], "DataSet"]
"""(a data set, positions of the examples that are trained on) -> the data set in the form which these decide."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSet:
    """Examples as they are held: bytes of images, numbers of tokens, real features."""

    name: str
    examples: Batch
    test: Batch | None = None
    """The data set's own test examples, where there are some."""
    owners: Indices | None = None
    """For each example the natural client that it comes from, as a place in `owner_names`."""
    test_owners: Indices | None = None
    owner_names: tuple[str, ...] = ()
    groups: Indices | None = None
    """Examples of one group (a recording, a drawing) are never divided between train and test."""
    times: Indices | None = None
    """For a split by time: earlier examples are trained on, later ones tested on."""
    class_names: tuple[str, ...] = ()
    goal: Goal = CLASSIFICATION
    prepare: Prepare | None = None
    augment: Augment | None = None
    fit: Fit | None = None
    """What is learnt from data before any network is: a vocabulary, means, levels. Until then examples are held raw."""

    def __post_init__(self) -> None:
        size = self.examples.num_examples
        for what in ("owners", "groups", "times"):
            values = getattr(self, what)
            if values is not None and len(values) != size:
                raise InvalidData(
                    f"{self.name} has {size} examples but {len(values)} {what}: give one for each example."
                )

    @cached_property
    def labels(self) -> Indices:
        """Class numbers as numpy knows them; zeros where targets are no classes."""
        return class_numbers(self.examples.targets)

    @property
    def num_classes(self) -> int:
        """Outputs that a network needs: classes, the vocabulary, or one number."""
        if self.class_names:
            return len(self.class_names)
        if self.examples.targets.is_floating_point():
            return 1
        both = [self.examples.targets] + ([] if self.test is None else [self.test.targets])
        return max(int(targets.max()) for targets in both) + 1

    def fitted(self, train: Indices) -> DataSet:
        """The data set with what `fit` learns from these examples alone; once, after the split and before the run."""
        return self if self.fit is None else replace(self.fit(self, train), fit=None)

    def only(self, chosen: Indices) -> DataSet:
        """The data set with some of its (training) examples."""
        places = torch.from_numpy(np.asarray(chosen, dtype=np.int64))
        return replace(
            self,
            examples=Batch(self.examples.inputs[places], self.examples.targets[places]),
            owners=None if self.owners is None else self.owners[chosen],
            groups=None if self.groups is None else self.groups[chosen],
            times=None if self.times is None else self.times[chosen],
        )


def class_numbers(targets: Tensor) -> Indices:
    if targets.is_floating_point() or targets.ndim != 1:
        return np.zeros(len(targets), dtype=np.int64)
    numbers: Indices = targets.numpy()
    return numbers


@dataclass(frozen=True)
class Scaled:
    """Bytes to real numbers from 0 to 1, then (x - mean) / std by channel."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    largest: float = 255.0

    def __call__(self, inputs: Tensor) -> Tensor:
        shape = (1, -1, *(1,) * (inputs.dim() - 2))
        scaled = inputs.to(torch.float32).div_(self.largest)
        if self.mean != (0.0,):
            scaled.sub_(torch.tensor(self.mean).reshape(shape))
        return scaled if self.std == (1.0,) else scaled.div_(torch.tensor(self.std).reshape(shape))
