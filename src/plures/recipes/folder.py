"""Writes a run folder; every file is whole at any moment, or grows by whole lines."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from plures.core.errors import RunFolderError
from plures.core.types import Params
from plures.evaluate import Evaluation
from plures.report import records
from plures.report.json_text import as_json_text as as_json_text

States = Iterable[tuple[int, Params]]
ROWS_AT_ONCE = 10_000
"""Of a table over all clients, so many rows are in memory."""


class RunFolder:
    """The records of one run, from its first round to its result."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_empty_folder(path)
        self.write_text(records.ROUNDS, "")

    @classmethod
    def reopened(cls, path: Path) -> RunFolder:
        """The folder of a run that has ended, to add to."""
        folder = cls.__new__(cls)
        folder.path = path
        return folder

    def write_text(self, name: str, text: str) -> None:
        self._replace(name, text.encode("utf-8"))

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        self.write_text(name, as_json_text(value, indent=2) + "\n")

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def add_round(self, line: Mapping[str, Any]) -> None:
        self._append(records.ROUNDS, (as_json_text(line) + "\n").encode("utf-8"))

    def add_clients(self, round: int, evaluations: Iterable[Evaluation], names: Mapping[int, str]) -> None:
        """One row per client and evaluation, as a gzip member of its own so that each append is whole."""
        text = io.StringIO(newline="")
        rows = csv.writer(text)
        evaluations = list(evaluations)
        metrics = next((list(score.values) for evaluation in evaluations for score in evaluation.scores), [])
        if not (self.path / records.CLIENTS).exists():
            rows.writerow([*records.CLIENT_COLUMNS, *metrics])
        for evaluation in evaluations:
            for score in evaluation.scores:
                where = (round, score.client, names[score.client], evaluation.kind, evaluation.split)
                rows.writerow([*where, score.examples, *(written(score.values[name]) for name in metrics)])
        self._append(records.CLIENTS, gzip.compress(text.getvalue().encode("utf-8"), mtime=0))

    def add_visits(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """What each visit of a round cost."""
        self._add_rows(records.VISITS, records.VISIT_COLUMNS, rows)

    def add_choices(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """What each client chose under a guard."""
        self._add_rows(records.CHOICES, records.CHOICE_COLUMNS, rows)

    def write_federation(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """What each client has, some clients at a time, for there may be many."""
        some = iter(rows)
        while block := list(islice(some, ROWS_AT_ONCE)):
            self._add_rows(records.FEDERATION, records.FEDERATION_COLUMNS, block)

    def _add_rows(self, file: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
        """As a gzip member of its own, so that each append is whole."""
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, columns)
        if not (self.path / file).exists():
            table.writeheader()
        table.writerows(rows)
        self._append(file, gzip.compress(text.getvalue().encode("utf-8"), mtime=0))

    def save_state(self, shared: Params, states: States) -> None:
        """The parameters after a whole round."""
        self._replace(records.SHARED, save(portable(shared)))
        self.save_states(records.PERSONAL, states)

    def save_states(self, file: str, states: States) -> None:
        """Parameters of clients, named CLIENT/PARAMETER."""
        named = {f"{client}/{name}": value for client, state in states for name, value in state.items()}
        self._replace(file, save(portable(named)))

    def _replace(self, name: str, content: bytes) -> None:
        partial = self.path / f".{name}.partial"
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path / name)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise RunFolderError(f"Cannot write {self.path / name}: {error.strerror}.") from error

    def _append(self, name: str, content: bytes) -> None:
        try:
            with (self.path / name).open("ab") as file:
                file.write(content)
        except OSError as error:
            raise RunFolderError(f"Cannot write {self.path / name}: {error.strerror}.") from error


def written(value: float) -> str:
    """A number in a table; where there is none, nothing."""
    return "" if math.isnan(value) else f"{value:.6g}"


def make_empty_folder(path: Path) -> None:
    """A new folder, or one with nothing in it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        occupied = any(path.iterdir())
    except OSError as error:
        raise RunFolderError(f"Cannot write to {path}: {error.strerror}. Choose another folder with --out.") from error
    if occupied:
        raise RunFolderError(f"The folder {path} is not empty. Choose another with --out, or remove it first.")


def portable(params: Params) -> Params:
    return {name: value.detach().cpu().contiguous().clone() for name, value in params.items()}


def state_fingerprint(shared: Params, states: States) -> str:
    """sha256 over the shared part and every client's own part: names, types, shapes and bits."""
    digest = hashlib.sha256()
    add_params(digest, "shared", shared)
    for client, state in states:
        add_params(digest, str(client), state)
    return digest.hexdigest()


def add_params(digest: Any, owner: str, params: Params) -> None:
    for name in sorted(params):
        value = params[name].detach().cpu().contiguous()
        digest.update(f"{owner}/{name}:{value.dtype}:{tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
