"""What each client of a run has: examples, classes and how many of each label."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from plures.data import Federation
from plures.data.client import AnyClientData, to_original
from plures.data.joining import Everyone


def census(clients: Federation | Everyone, num_participants: int) -> Iterator[dict[str, Any]]:
    """One row per client, newcomers last; targets that are no classes have no labels to count."""
    for number in range(clients.num_clients):
        data = clients.client(number)
        labels = {split: counted(data, split, clients.label_space) for split in ("train", "test")}
        yield {
            "client": number,
            "name": clients.name(number),
            "role": "participant" if number < num_participants else "newcomer",
            **{split: len(targets) for split, targets in data.targets.items()},
            "classes": "" if labels["train"] is None else len(labels["train"]),
            "train_labels": json.dumps(labels["train"] or {}),
            "test_labels": json.dumps(labels["test"] or {}),
        }


def counted(data: AnyClientData, split: str, label_space: str) -> dict[int, int] | None:
    """Examples by label, in the label space that all clients share; None where targets are no labels."""
    targets: Tensor = data.targets[split]
    if targets.is_floating_point() or targets.dim() != 1:
        return None
    labels = to_original(targets, data.classes) if label_space == "local" else targets
    values, counts = torch.unique(labels, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))
