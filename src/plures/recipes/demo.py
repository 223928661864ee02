"""The demo: every method on handwritten digits, twenty clients with two classes each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from plures.evaluate import compare
from plures.methods import METHODS
from plures.recipes.experiment import make_experiment
from plures.recipes.folder import as_json_text, make_empty_folder
from plures.recipes.results import RunResult
from plures.recipes.several import several_runs
from plures.recipes.watching import Watcher
from plures.report.tables import Row, row_of

COHORT = 10
EPOCH = {"epochs": 2, "batch": 10}
SAME = {"lr": 0.1, "budget": EPOCH}
"""The local work of one visit: alike for all methods that have these options."""
FIRST = ("local", "fedavg", "finetune", "fedper", "fedalt", "pflego")
OTHER_OPTIONS: dict[str, dict[str, Any]] = {
    "ditto": {"personal_budget": EPOCH},
    "fedbabu": {"tune": EPOCH},
    "fedper": {"start": "common"},
    "fedprox": {"mu": 0.1},
    "fedrecon": {"recon_budget": EPOCH},
    "fedrep": {"head_budget": EPOCH},
    "finetune": {"tune": EPOCH},
    "per_fedavg": {"inner_lr": 0.05, "budget": {"epochs": 4, "batch": 10}, "adapt": EPOCH},
    "pfedgate": {"lr": 0.5, "gate_lr": 1.5},
    "pfedme": {"lam": 2.0, "inner_lr": 0.1},
    "pflego": {"tau": 50, "client_lr": 0.1, "server": 0.005, "start": "common"},
}
MODELS = {"fedbn": {"batch_norm": True}}
"""Where a method needs another network than the rest."""


def shown() -> list[str]:
    """The usual six, then every other method."""
    return [*FIRST, *(method for method in METHODS if method not in FIRST)]


def options_of(method: str) -> dict[str, Any]:
    known = inspect.signature(METHODS[method].make).parameters
    return {name: value for name, value in SAME.items() if name in known} | OTHER_OPTIONS.get(method, {})


def run_demo(
    out: Path,
    run: Callable[..., RunResult],
    *,
    rounds: int,
    seed: int = 0,
    watcher: Watcher | None = None,
) -> list[Row]:
    """Run every method, each in a folder of its own, and compare them client by client with FedAvg."""
    make_empty_folder(out)
    results: dict[str, RunResult] = {}
    with several_runs(out, len(shown()), watcher) as next_run:
        for method in shown():
            next_run()
            results[method] = run_method(method, out, run, rounds, seed, watcher)
    reference = results["fedavg"].scores("global")
    rows = []
    for method, result in results.items():
        versus = compare(result.scores(), reference)
        counts = None if method == "fedavg" else (versus.helped, versus.hurt)
        rows.append(row_of(METHODS[method].title, result.as_json(), counts))
    (out / "comparison.json").write_text(as_json_text([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return rows


def run_method(
    method: str, out: Path, run: Callable[..., RunResult], rounds: int, seed: int, watcher: Watcher | None
) -> RunResult:
    table = {
        "method": method,
        "rounds": rounds,
        "cohort": COHORT,
        "seed": seed,
        "evaluation": {"every": max(1, rounds // 4)},
        "method_options": options_of(method),
        "model": MODELS.get(method, {}),
    }
    return run(make_experiment(table), out=out / method, title=METHODS[method].title, watcher=watcher)
