"""The command that lists runs with their state."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from plures.cli.options import AsJson
from plures.report.json_text import as_json_text
from plures.report.run_states import list_runs
from plures.report.run_tables import runs_table


def runs(
    folder: Annotated[Path, typer.Argument(help="Where to look; folders below it are looked through too.")] = Path(
        "runs"
    ),
    as_json: AsJson = False,
) -> None:
    """List the runs below a folder, newest first, with their state.

    running; finished; interrupted (by Ctrl-C), failed or diverged: the whole
    rounds are kept; dead: its process is gone without a result; damaged: its
    files cannot be read. score: test accuracy, pooled, of the model that the
    method is judged by, or its other metric by name; "val." where only
    validation data were looked at. age: since it was last heard of. Folders
    are shown from the one that was given.

    Example: plures runs runs/study
    """
    found = list_runs(folder)
    if as_json:
        typer.echo(as_json_text([run.as_json() for run in found], indent=2))
        return
    console = Console()
    if not found:
        console.print(f"There are no runs below {folder}.", highlight=False, soft_wrap=True)
        return
    console.print(runs_table(found, folder), highlight=False)
    counts = ", ".join(f"{number} {state}" for state, number in Counter(run.state for run in found).items())
    console.print(f"\n{counts}", highlight=False)
