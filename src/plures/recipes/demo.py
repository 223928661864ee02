"""The demo: six methods on handwritten digits, twenty clients with two classes each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from plures.evaluate import compare
from plures.recipes.experiment import make_experiment
from plures.recipes.folder import as_json_text, make_empty_folder
from plures.recipes.results import RunResult
from plures.recipes.watching import Watcher
from plures.report.tables import Row, row_of

ROUNDS = 40
COHORT = 10
EPOCH = {"epochs": 2, "batch": 10}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the demo."""

    title: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)


ENTRIES = (
    Entry(title="Local", method="local", options={"lr": 0.1, "budget": EPOCH}),
    Entry(title="FedAvg", method="fedavg", options={"lr": 0.1, "budget": EPOCH}),
    Entry(title="FedAvg-FT", method="finetune", options={"lr": 0.1, "budget": EPOCH, "tune": EPOCH}),
    Entry(title="FedPer", method="fedper", options={"lr": 0.1, "budget": EPOCH, "start": "common"}),
    Entry(title="FedAlt", method="fedalt", options={"lr": 0.1, "budget": EPOCH}),
    Entry(title="PFLEGO", method="pflego", options={"tau": 50, "client_lr": 0.1, "server": 0.005, "start": "common"}),
)


def run_demo(
    out: Path,
    run: Callable[..., RunResult],
    *,
    rounds: int = ROUNDS,
    seed: int = 0,
    watcher: Watcher | None = None,
) -> list[Row]:
    """Run every entry, each in a folder of its own, and compare them client by client with FedAvg."""
    make_empty_folder(out)
    results = {entry.title: run_entry(entry, out, run, rounds, seed, watcher) for entry in ENTRIES}
    reference = results["FedAvg"].scores("global")
    rows = []
    for title, result in results.items():
        versus = compare(result.scores(), reference)
        rows.append(row_of(title, result.as_json(), None if title == "FedAvg" else (versus.helped, versus.hurt)))
    (out / "comparison.json").write_text(as_json_text([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return rows


def run_entry(
    entry: Entry, out: Path, run: Callable[..., RunResult], rounds: int, seed: int, watcher: Watcher | None
) -> RunResult:
    table = {
        "method": entry.method,
        "rounds": rounds,
        "cohort": COHORT,
        "seed": seed,
        "evaluation": {"every": 10},
        "method_options": entry.options,
    }
    return run(make_experiment(table), out=out / entry.title.lower(), title=entry.title, watcher=watcher)
