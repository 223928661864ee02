"""What clients' models came to in the last evaluated round: read in one pass, kept as arrays."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plures.core.errors import RunFolderError
from plures.report import records
from plures.report.infinite import Floats
from plures.report.studies import reading

Numbers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ClientScores:
    """One kind of model on one split, client by client, sorted by their numbers."""

    clients: Numbers
    names: Sequence[str]
    examples: Numbers
    values: Mapping[str, Floats]
    """By metric; NaN where a client has none."""

    def row_of(self, client: int) -> int | None:
        place = int(np.searchsorted(self.clients, client))
        return place if place < len(self.clients) and self.clients[place] == client else None


@dataclass(kw_only=True)
class _Latest:
    """Rows of the latest round so far."""

    round: int = -1
    clients: array[int] = field(default_factory=lambda: array("q"))
    names: list[str] = field(default_factory=list)
    examples: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def scores(self, metrics: Sequence[str]) -> ClientScores:
        """By client; of two rows of a client the later counts, as with fine-tuning that a pipeline adds."""
        clients = np.array(self.clients, dtype=np.int64)[::-1]
        known, places = np.unique(clients, return_index=True)
        rows = len(clients) - 1 - places
        table = np.array(self.values, dtype=np.float64).reshape(len(clients), len(metrics))[rows]
        return ClientScores(
            clients=known,
            names=[self.names[row] for row in rows],
            examples=np.array(self.examples, dtype=np.int64)[rows],
            values={metric: table[:, column] for column, metric in enumerate(metrics)},
        )


def read_scores(
    folder: Path, model: str, splits: Sequence[str], metrics: Sequence[str], *, until: float = math.inf
) -> dict[str, ClientScores]:
    """Of each split that was scored; of the metrics, the first and those of the others that were recorded.

    Rounds after `until` are not looked at.
    """
    path = folder / records.CLIENTS
    if not path.is_file():
        raise RunFolderError(f"{folder} has no {records.CLIENTS}: its clients cannot be compared.")
    try:
        with reading(path), gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            heading = next(rows, [])
            known = [metric for metric in metrics if metric in heading or metric == metrics[0]]
            latest = {split: _Latest() for split in splits}
            columns = [heading.index(name) for name in (*records.CLIENT_COLUMNS, *known)]
            for row in rows:
                take(row, columns, model, latest, until)
    except (EOFError, zlib.error, csv.Error, IndexError) as error:
        raise RunFolderError(f"{path} is damaged: {error}.") from error
    return {split: rows.scores(known) for split, rows in latest.items() if rows.clients}


def take(row: Sequence[str], columns: Sequence[int], model: str, latest: dict[str, _Latest], until: float) -> None:
    """Keep a row of the model if no later round is known."""
    round, client, name, kind, split, examples, *values = (row[column] for column in columns)
    kept = latest.get(split)
    if kind != model or kept is None or not kept.round <= int(round) <= until:
        return
    if int(round) > kept.round:
        kept = latest[split] = _Latest(round=int(round))
    kept.clients.append(int(client))
    kept.names.append(name)
    kept.examples.append(int(examples))
    kept.values.extend(float(value) if value else float("nan") for value in values)
