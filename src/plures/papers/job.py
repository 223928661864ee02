"""One run in a process of its own: `python -m plures.papers.job`, with what to run as JSON on standard input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from plures.core.errors import Diverged, PluresError
from plures.engines.memory import keep_freed_memory
from plures.papers.outcomes import (
    DIVERGED,
    Made,
    Outcome,
    distilled,
    read_final_clients,
    short,
    without_end,
    write_outcome,
)
from plures.papers.paces import machine
from plures.recipes import run_experiment
from plures.recipes.experiment import Experiment, make_experiment, plain_table
from plures.recipes.loading import load_named
from plures.report import records

INTERRUPTED, FAILED = 130, 1


def main() -> int:
    """What goes wrong is told on standard error, in a line."""
    for number in (signal.SIGINT, signal.SIGTERM):  # ignored, or deadly, as whoever started the reproduction had them
        signal.signal(number, signal.default_int_handler)
    keep_freed_memory()
    asked = json.load(sys.stdin)
    try:
        outcome = run_cell(
            make_experiment(asked["experiment"]),
            key=asked["key"],
            folder=Path(asked["folder"]),
            extras=asked["extras"],
            engine=asked["engine"],
            pretrained=Path(asked["pretrained"]),
        )
        path = Path(asked["outcome"])
        path.parent.mkdir(parents=True, exist_ok=True)
        write_outcome(path, outcome)
    except KeyboardInterrupt:
        return INTERRUPTED
    except PluresError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    return 0 if outcome.status in ("finished", DIVERGED) else FAILED


def run_cell(
    experiment: Experiment, *, key: str, folder: Path, extras: list[str], engine: str, pretrained: Path
) -> Outcome:
    """Run it, or go on with it, and keep what tables and figures need."""
    table = plain_table(experiment)
    placed = experiment.model_copy(update={"engine": engine})
    if placed.pipeline is not None:
        placed = placed.model_copy(update={"pipeline": placed.pipeline.model_copy(update={"cache": str(pretrained)})})
    try:
        run_experiment(placed, out=folder, resume=folder.exists())
    except Diverged as error:  # it would again
        return without_end(folder, key=key, experiment=table, made=made_here(0.0), words=str(error))
    result = records.read_result(folder)
    if result["status"] == "interrupted":
        raise KeyboardInterrupt
    found = {name.rpartition(":")[2]: load_named("extra", name)(folder) for name in extras}
    made = made_here(result["cost"]["seconds"])
    outcome = distilled(folder, key=key, experiment=table, made=made, extras=found)
    return with_first_stage(outcome, result)


def made_here(seconds: float) -> Made:
    return Made(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=commit(),
        machine=machine(),
        version=version("plures"),
        seconds=round(float(seconds), 1),
    )


def with_first_stage(outcome: Outcome, result: dict[str, Any]) -> Outcome:
    """Stage (a) of a pipeline is a model of its own: what it came to, client by client."""
    stages = [stage for stage in result.get("stages") or () if stage["stage"] == "pretrain" and stage["folder"]]
    if not stages:
        return outcome
    folder = Path(stages[0]["folder"])
    before = records.read_result(folder)["metrics"]
    final, clients = dict(outcome.final), dict(outcome.clients)
    for metric, summary in before.items():
        if metric.startswith("global/"):
            final[metric.replace("global/", "stage_a/", 1)] = {name: short(value) for name, value in summary.items()}
    for name, scores in read_final_clients(folder, before).items():
        if name.startswith("global/"):
            clients[name.replace("global/", "stage_a/", 1)] = scores
    return replace(outcome, final=final, clients=clients)


def commit() -> str:
    """Of the source that runs, where it is a checkout; with a + where the package was changed since."""
    package = Path(__file__).parents[1]
    git = ["git", "-C", str(package)]
    try:
        name = told_by([*git, "rev-parse", "--short", "HEAD"])
        return name + "+" * bool(told_by([*git, "status", "--porcelain", "--", str(package)]))
    except (OSError, subprocess.SubprocessError):
        return "none"


def told_by(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
