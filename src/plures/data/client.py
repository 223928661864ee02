"""The data of one client, and its labels in the global or in its own label space."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.types import Batch, sum_bytes

LabelSpace = Literal["global", "local"]
"""global: output c is class c for everyone. local: a client's K_i classes are numbered 0..K_i-1 in sorted order."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClientData:
    """What one client trains on, chooses on and is tested on."""

    train: Batch
    validation: Batch
    test: Batch
    classes: tuple[int, ...]
    """The original labels in all of this client's data, sorted: in the local label space, target k is `classes[k]`."""

    @property
    def splits(self) -> dict[str, Batch]:
        """By name, in order."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def targets(self) -> dict[str, Tensor]:
        """The targets of each split, without inputs."""
        return {split: batch.targets for split, batch in self.splits.items()}

    @property
    def num_bytes(self) -> int:
        return sum(sum_bytes(batch) for batch in self.splits.values())


Prepare = Callable[[Tensor], Tensor]
"""From inputs as they are held to what networks take: bytes to real numbers, normalised."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedClient:
    """A client whose inputs are held in a compact form and prepared each time they are asked for."""

    data: ClientData
    prepare: Prepare

    @property
    def train(self) -> Batch:
        return self._prepared(self.data.train)

    @property
    def validation(self) -> Batch:
        return self._prepared(self.data.validation)

    @property
    def test(self) -> Batch:
        return self._prepared(self.data.test)

    @property
    def classes(self) -> tuple[int, ...]:
        return self.data.classes

    @property
    def splits(self) -> Mapping[str, Batch]:
        """By name, in order; each is prepared when it is taken."""
        return _Prepared(self)

    @property
    def targets(self) -> dict[str, Tensor]:
        return self.data.targets

    def _prepared(self, batch: Batch) -> Batch:
        return Batch(self.prepare(batch.inputs), batch.targets)


AnyClientData = ClientData | PreparedClient


class _Prepared(Mapping[str, Batch]):
    def __init__(self, client: PreparedClient) -> None:
        self._client = client

    def __getitem__(self, split: str) -> Batch:
        return self._client._prepared(self._client.data.splits[split])

    def __iter__(self) -> Iterator[str]:
        return iter(self._client.data.splits)

    def __len__(self) -> int:
        return len(self._client.data.splits)


def make_client(train: Batch, validation: Batch | None, test: Batch, label_space: LabelSpace) -> ClientData:
    """A client from batches with original labels; re-indexes them if its label space is local."""
    validation = empty_like(train) if validation is None else validation
    batches = (train, validation, test)
    classes = classes_in(*(batch.targets for batch in batches))
    if label_space == "local":
        train, validation, test = (Batch(batch.inputs, to_local(batch.targets, classes)) for batch in batches)
    return ClientData(train=train, validation=validation, test=test, classes=classes)


def classes_in(*targets: Tensor) -> tuple[int, ...]:
    """The distinct labels, sorted; none if the targets are no class numbers."""
    parts = [part.flatten() for part in targets if part.numel()]
    if not parts or any(part.is_floating_point() for part in parts):
        return ()
    return tuple(torch.unique(torch.cat(parts)).tolist())


def to_local(targets: Tensor, classes: tuple[int, ...]) -> Tensor:
    """Each label's place among the client's sorted classes; unchanged if there are no classes."""
    if not classes:
        return targets
    return torch.searchsorted(torch.tensor(classes, dtype=targets.dtype), targets)


def to_original(targets: Tensor, classes: tuple[int, ...]) -> Tensor:
    """The inverse of `to_local`."""
    if not classes:
        return targets
    return torch.tensor(classes, dtype=targets.dtype)[targets]


def empty_like(batch: Batch) -> Batch:
    """No examples, of the same form."""
    return Batch(batch.inputs[:0], batch.targets[:0])


def check_label_space(label_space: str) -> None:
    """An error unless it is one of the two."""
    known = get_args(LabelSpace)
    if label_space not in known:
        raise InvalidConfig(f"label_space is '{label_space}'. {did_you_mean(label_space, known)}")
