"""Writes run folders and study folders by hand, as a run would."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from plures.recipes.folder import as_json_text
from plures.report.scales import SMALLER_IS_BETTER

Values = Sequence[float | None]
"""One for each client; None: the client has no value."""


def write_run(
    folder: Path,
    values: Mapping[str, Values],
    *,
    method: str = "fedavg",
    seed: int = 0,
    metric: str = "accuracy",
    headline: str = "personal",
    examples: Sequence[int] | None = None,
    options: Mapping[str, float] | None = None,
    model: Mapping[str, Any] | None = None,
    configured: bool = True,
    result: Mapping[str, Any] | None = None,
) -> Path:
    """A run of one evaluated round; `values` is by name, such as {"personal/test": [0.5, 1.0]}."""
    folder.mkdir(parents=True)
    if configured:
        table = {"method": method, "seed": seed, "model": dict(model or {}), "method_options": dict(options or {})}
        (folder / "experiment.toml").write_text(tomli_w.dumps(table), encoding="utf-8")
    sizes = examples or [10] * max(map(len, values.values()))
    rows = [
        (5, client, f"c{client}", *name.rsplit("/", 1), sizes[client], value, 1.0)
        for name, of_clients in values.items()
        for client, value in enumerate(of_clients)
    ]
    write_clients(folder, [(metric, "loss")], [rows])
    found = {f"{name}/{metric}": summary(of_clients, sizes, metric) for name, of_clients in values.items()}
    line = {"round": 5, "metrics": found}
    (folder / "rounds.jsonl").write_text(as_json_text(line) + "\n", encoding="utf-8")
    facts = {
        "status": "finished",
        "method": method,
        "seed": seed,
        "rounds": 5,
        "rounds_done": 5,
        "headline": headline,
        "metric": metric,
        "metrics_round": 5,
        "metrics": found,
        "selected": {"round": 5, "metrics": found},
        "rounds_to": {"metric": f"{headline}/test/{metric}", "targets": {}, "share": 0.8, "share_of_final": 5},
        "cost": {"bytes_down": 1000, "bytes_up": 500},
        "fingerprint": {"data": "d", "split": "s", "final_state": f"{method}{seed}"},
    }
    (folder / "result.json").write_text(as_json_text(facts | dict(result or {})), encoding="utf-8")
    return folder


def write_clients(folder: Path, metrics: Sequence[Sequence[str]], members: Iterable[Iterable[Sequence[Any]]]) -> None:
    """The per-client file, each append a gzip member of its own."""
    heading = ["round", "client", "name", "model", "split", "examples", *metrics[0]]
    content = b""
    for number, rows in enumerate(members):
        text = io.StringIO(newline="")
        csv.writer(text).writerows([heading, *rows] if number == 0 else rows)
        content += gzip.compress(text.getvalue().encode("utf-8"))
    (folder / "clients.csv.gz").write_bytes(content)


def write_federation(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Who the clients are."""
    columns = ["client", "name", "role", "train", "validation", "test", "classes", "train_labels", "test_labels"]
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, columns)
    table.writeheader()
    table.writerows(rows)
    (folder / "federation.csv.gz").write_bytes(gzip.compress(text.getvalue().encode("utf-8")))


def write_study(
    folder: Path, runs: Iterable[tuple[str, int, str]], planned: Iterable[tuple[str, int, str]] | None = None
) -> Path:
    """Of (label, seed, folder below the study's); older ones do not tell what was planned."""
    table = {"runs": list(map(listed, runs))} | ({} if planned is None else {"planned": list(map(listed, planned))})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text(json.dumps(table), encoding="utf-8")
    return folder


def listed(member: tuple[str, int, str]) -> dict[str, Any]:
    return dict(zip(("label", "seed", "folder"), member, strict=True))


def summary(values: Values, sizes: Sequence[int], metric: str) -> dict[str, float]:
    """As evaluation sums up: an rmse is pooled as squares, and the worst is the largest."""
    known = [(value, size) for value, size in zip(values, sizes, strict=False) if value is not None]
    numbers, weights = np.array([value for value, _ in known]), [size for _, size in known]
    power = 2 if metric == "rmse" else 1
    worst_first = np.sort(numbers)[:: -1 if metric in SMALLER_IS_BETTER else 1]
    return {
        "weighted": float(np.average(numbers**power, weights=weights) ** (1 / power)),
        "mean": float(numbers.mean()),
        "std": float(numbers.std()) if np.isfinite(numbers).all() else float("nan"),
        "bottom_decile": float(worst_first[len(numbers) // 10]),
        "worst": float(worst_first[0]),
    }
