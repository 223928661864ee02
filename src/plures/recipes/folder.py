"""Writes a run folder; every file is whole at any moment, or grows by whole lines."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import torch
from safetensors.torch import save

from plures.core.errors import RunFolderError
from plures.core.types import Params
from plures.evaluate import Evaluation
from plures.report import records
from plures.report.json_text import as_json_text as as_json_text
from plures.report.writing import replace_whole

States = Iterable[tuple[int, Params]]
ROWS_AT_ONCE = 10_000
"""Of a table over all clients, so many rows are in memory."""


class Mark(NamedTuple):
    """How far a file that grows is good."""

    num_bytes: int = 0
    crc32: int = 0

    def after(self, content: bytes) -> Mark:
        return Mark(self.num_bytes + len(content), crc32(content, self.crc32))


class RunFolder:
    """The records of one run, from its first round to its result."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_empty_folder(path)
        self.marks: dict[str, Mark] = {}
        """Of what was appended so far."""
        self.write_text(records.ROUNDS, "")

    @classmethod
    def reopened(cls, path: Path, marks: Mapping[str, Mark] | None = None) -> RunFolder:
        """The folder of a run that was there before, to add to; with marks, what lies beyond them is cut off."""
        folder = cls.__new__(cls)
        folder.path, folder.marks = path, dict(marks or {})
        if marks is not None:
            folder._cut_off()
        return folder

    def _cut_off(self) -> None:
        for name in records.GROWING:
            file = self.path / name
            try:
                if name in self.marks:
                    os.truncate(file, self.marks[name].num_bytes)
                elif name != records.ROUNDS:
                    file.unlink(missing_ok=True)
                else:
                    self.write_text(name, "")
            except OSError as error:
                raise RunFolderError(f"Cannot write {file}: {error.strerror}.") from error

    def flush(self) -> None:
        """What was appended is on the disk."""
        for name in self.marks:
            with self._writing(name), (self.path / name).open("ab") as file:
                os.fsync(file.fileno())

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

    def save_shared(self, shared: Params) -> None:
        """The shared part after a whole round."""
        self._replace(records.SHARED, save(portable(shared)))

    def save_states(self, file: str, states: States) -> None:
        """Parameters of clients, named CLIENT/PARAMETER."""
        named = {f"{client}/{name}": value for client, state in states for name, value in state.items()}
        self._replace(file, save(portable(named)))

    def _replace(self, name: str, content: bytes) -> None:
        with self._writing(name):
            replace_whole(self.path / name, content)

    def _append(self, name: str, content: bytes) -> None:
        """All of it or nothing; a process that is killed may leave a part, which is cut off when the run goes on."""
        with self._writing(name), (self.path / name).open("ab") as file:
            size = file.tell()
            try:
                file.write(content)
                file.flush()
            except OSError:
                os.truncate(self.path / name, size)
                raise
        self.marks[name] = self.marks.get(name, Mark()).after(content)

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
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
