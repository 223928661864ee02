"""Who the clients of a run are: how many examples and classes each has."""

from __future__ import annotations

import csv
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

from plures.core.errors import RunFolderError
from plures.report import records
from plures.report.studies import reading


@dataclass(frozen=True, kw_only=True)
class Member:
    """One client, as federation.csv.gz has it; None where there are no classes."""

    train: int
    validation: int
    test: int
    classes: int | None
    train_labels: str
    test_labels: str
    """Counts by label, as JSON."""


def read_population(folder: Path, *, newcomers: bool = False) -> dict[int, Member]:
    """Participants, or newcomers, by number; empty where the run did not record them."""
    path = folder / records.FEDERATION
    if not path.is_file():
        return {}
    role = "newcomer" if newcomers else "participant"
    try:
        with reading(path):
            return {
                int(row["client"]): member_of(row) for row in records.read_federation(folder) if row["role"] == role
            }
    except (EOFError, zlib.error, csv.Error) as error:
        raise RunFolderError(f"{path} is damaged: {error}.") from error


def member_of(row: dict[str, str]) -> Member:
    return Member(
        train=int(row["train"]),
        validation=int(row["validation"]),
        test=int(row["test"]),
        classes=int(row["classes"]) if row["classes"] else None,
        train_labels=row["train_labels"],
        test_labels=row["test_labels"],
    )


def label_counts(text: str) -> dict[str, int] | None:
    """By label; None for targets that are no classes."""
    counts: dict[str, int] | None = json.loads(text) if text else None
    return counts
