"""The command that makes a page about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from plures.cli import completing
from plures.cli.compare import Alone, Model, Newcomers
from plures.cli.options import AsJson
from plures.report.comparing import Asked
from plures.report.json_text import as_json_text
from plures.report.tables import readable_bytes


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN-or-STUDY...", help="Folders of runs, or of a study.", autocompletion=completing.run_folders
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="The page; by default report.html in the first folder."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL-or-FOLDER",
            help="What clients are compared with; by default fedavg, or the first. stage-a: the model that each "
            "pipeline began with.",
        ),
    ] = None,
    model: Model = None,
    newcomers: Newcomers = False,
    alone: Alone = False,
    as_json: AsJson = False,
) -> None:
    """Make one HTML page about runs, which works offline.

    Curves over rounds, bytes and time, clients helped and hurt, the federation,
    costs, masks and gates, and the configuration. Runs that differ in their
    seed alone are one label, as in plures compare.

    Example: plures report runs/study --against local
    """
    from plures.report.page.writing import write_report  # plotly takes a second to import

    path = write_report(folders, out, against, Asked(model=model, newcomers=newcomers), alone=alone)
    if as_json:
        typer.echo(as_json_text({"report": str(path), "bytes": path.stat().st_size}))
        return
    size = readable_bytes(path.stat().st_size)
    Console().print(f"Report: {path} ({size})", highlight=False, markup=False, soft_wrap=True)
