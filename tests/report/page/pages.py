"""Pages about run folders that tests write by hand."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plures.report.comparing import Asked
from plures.report.page.building import charts_of, sections_of
from plures.report.page.chart import Chart, Missing
from plures.report.page.gathered import Gathered, gather


def gathered(*folders: Path, against: str | None = None, asked: Asked | None = None) -> Gathered:
    return gather(list(folders), against, asked)


def charts(*folders: Path, **more: Any) -> dict[str, Chart]:
    """By key."""
    return {chart.key: chart for chart in charts_of(sections_of(gathered(*folders, **more)))}


def missing(*folders: Path) -> dict[str, str]:
    """What is not drawn, by title, and why."""
    groups = [group for section in sections_of(gathered(*folders)) for group in section.groups]
    return {item.title: item.why for group in groups for item in group.items if isinstance(item, Missing)}


def write_rounds(folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def rename(folder: Path, before: str, after: str) -> None:
    """Give a client another name in the per-client file."""
    path = folder / "clients.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [[*row[:2], after if row[2] == before else row[2], *row[3:]] for row in csv.reader(file)]
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    path.write_bytes(gzip.compress(text.getvalue().encode("utf-8")))


def member(client: int, train: int, labels: Mapping[str, int] | None = None, **more: Any) -> dict[str, Any]:
    """A row of federation.csv.gz."""
    counts = json.dumps(labels or {})
    usual = {"name": f"c{client}", "role": "participant", "validation": 0, "test": 10, "classes": len(labels or {})}
    return {"client": client, "train": train, "train_labels": counts, "test_labels": counts, **usual, **more}


def listed(values: Any) -> list[Any]:
    """Of an array or a list."""
    return list(values.tolist() if hasattr(values, "tolist") else values)
