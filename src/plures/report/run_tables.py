"""The table of runs and their states."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from plures.report.run_states import RunState
from plures.report.tables import score

COLOURS = {"running": "cyan", "finished": "green", "interrupted": "yellow"}
"""Every other state is red."""
SHORT = {"validation": "val."}


def runs_table(runs: Sequence[RunState], base: Path) -> Table:
    """Runs under each other; folders as seen from `base`, as long as they are."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("state", no_wrap=True)
    table.add_column("method", no_wrap=True, max_width=11)
    for heading in ("seed", "rounds", "score", "age"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("folder", overflow="fold", min_width=20)
    for run in runs:
        table.add_row(
            Text(run.state, style=COLOURS.get(run.state, "red")),
            Text(run.method or "-"),
            "-" if run.seed is None else str(run.seed),
            "-" if run.rounds is None else f"{run.rounds_done}/{run.rounds}",
            shown_score(run),
            readable_age(time.time() - run.changed),
            Text(shown_folder(run.folder, base)),
        )
    return table


def shown_score(run: RunState) -> str:
    """An accuracy alone, another metric with its name; what is not of test data says so."""
    if run.metric is None or run.value is None:
        return "-"
    metric = run.metric.rpartition("/")[2]
    value = score(run.value, metric)
    split = run.metric.split("/")[-2]
    where = "" if split == "test" else f" {SHORT.get(split, split)}"
    return f"{value if metric == 'accuracy' else f'{metric} {value}'}{where}"


def shown_folder(folder: Path, base: Path) -> str:
    return str(folder) if folder == base else str(folder.relative_to(base))


def readable_age(seconds: float) -> str:
    """In the largest unit that leaves a number above 0."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
