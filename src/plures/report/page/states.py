"""Reads what clients keep, masks and gates, from the files of a run; numpy alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from plures.core.errors import RunFolderError
from plures.report import records
from plures.report.gates import clients_with
from plures.report.page.few import evenly

Bits = NDArray[np.bool_]
MASK, SCORE, OWNED, VOTE, GIVEN = "mask.", "score.", "owned.", "vote.", "given."
"""How methods name what they add; a test holds these to `local`, which reports do not import."""
MOST_MASKED = 200
"""Clients whose masks are read."""


class Masks:
    """Which coordinates of each parameter clients hold, read client by client."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / records.PERSONAL
        self.shared = folder / records.SHARED
        self.by_client = masked_names(self.path) if self.path.is_file() else {}
        every = sorted(self.by_client)
        self.num_clients = len(every)
        self.clients: Sequence[int] = [every[place] for place in evenly(len(every), MOST_MASKED)]

    def read(self) -> Iterator[dict[str, Bits]]:
        """The masks of each client, by the names of the parameters."""
        with opened(self.path) as file, opened(self.shared) as shared:
            kept, common = set(file.keys()), set(shared.keys())
            for client in self.clients:
                yield {name: mask_in(file, shared, kept | common, client, name) for name in self.by_client[client]}


def mask_in(file: Any, shared: Any, there: set[str], client: int, name: str) -> Bits:
    """As it was kept; or what comes of scores and votes among the entries that a client owns."""
    mask, owned, score = (f"{client}/{prefix}{name}" for prefix in (MASK, OWNED, SCORE))
    if not {owned, score, VOTE + name, GIVEN + name} <= there:
        found: Bits = file.get_tensor(mask if mask in there else owned)
        return found
    scored = file.get_tensor(score) > 0
    voted = np.where(shared.get_tensor(GIVEN + name), shared.get_tensor(VOTE + name), scored)
    bits: Bits = voted & file.get_tensor(owned)
    return bits


def masked_names(path: Path) -> dict[int, list[str]]:
    """The masked parameters of each client."""
    found: dict[int, list[str]] = {}
    with opened(path) as file:
        for client, name in clients_with(file.keys(), (MASK, OWNED)):
            if file.get_slice(f"{client}/{name}").get_dtype() == "BOOL":
                found.setdefault(client, []).append(name.removeprefix(MASK).removeprefix(OWNED))
    return found


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """What goes wrong with a file is one error that names it."""
    try:
        with safe_open(path, "numpy") as file:
            yield file
    except (OSError, SafetensorError, ValueError) as error:
        raise RunFolderError(f"Cannot read {path}: {error}.") from error
