"""Reads the gates that clients keep from a run folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from plures.core.errors import RunFolderError
from plures.report.infinite import Floats

GATE = "gate."
BUFFERS = ("running_mean", "running_var", "running_variance", "num_batches_tracked")


def read_gates(path: Path) -> dict[int, Floats]:
    """Each client's gate as one vector, without running statistics."""
    found: dict[int, list[Floats]] = {}
    try:
        with safe_open(path, "numpy") as file:
            for client, name in clients_with(file.keys(), (GATE,)):
                if not name.endswith(BUFFERS):
                    values: Floats = file.get_tensor(f"{client}/{name}").astype(np.float64).ravel()
                    found.setdefault(client, []).append(values)
    except (OSError, SafetensorError, ValueError) as error:
        raise RunFolderError(f"Cannot read {path}: {error}.") from error
    return {client: np.concatenate(parts) for client, parts in found.items()}


def clients_with(keys: Iterable[str], prefixes: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Of keys such as 17/gate.weight, those whose name begins so: client and name."""
    for key in sorted(keys):
        client, _, name = key.partition("/")
        if name.startswith(prefixes):
            yield int(client), name
