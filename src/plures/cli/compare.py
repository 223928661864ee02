"""The command that puts labels side by side."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from plures.cli import completing
from plures.cli.options import AsJson
from plures.report.compare_legend import deltas_legend, legend, notes
from plures.report.compare_tables import deltas_table, labels_table
from plures.report.comparing import Asked, compare_series
from plures.report.json_text import as_json_text
from plures.report.references import read_with_reference

Split = Annotated[Literal["train", "validation", "test"], typer.Option(help="On which of the clients' examples.")]
Model = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="global, personal, finetuned, ...; by default what a method is judged by."),
]
USUAL = Asked()
"""What methods are judged by, on test data."""
Newcomers = Annotated[bool, typer.Option("--newcomers", help="Look at clients that took no part in training instead.")]


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN-or-STUDY...",
            help="Folders of runs, or of a study.",
            autocompletion=completing.run_folders,
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL-or-FOLDER",
            help="The reference; by default fedavg, or the first. stage-a: the model that each pipeline began with.",
        ),
    ] = None,
    model: Model = None,
    split: Split = "test",
    newcomers: Newcomers = False,
    deltas: Annotated[bool, typer.Option("--deltas", help="Also what becomes of clients, on every split.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare runs: means over seeds, paired differences, clients helped and hurt.

    Runs that differ in their seed alone are one label. Differences are taken
    seed by seed and client by client, with a 95% bootstrap interval over both.

    Example: plures compare runs/fedavg-* runs/fedalt-* --against fedavg
    """
    asked = Asked(model=model, split=split, newcomers=newcomers)
    show_comparison(folders, against, asked, deltas=deltas, as_json=as_json)


def show_comparison(
    folders: list[Path],
    against: str | None = None,
    asked: Asked = USUAL,
    *,
    deltas: bool = False,
    as_json: bool = False,
) -> None:
    """Labels side by side, for a reader or for a program."""
    series, reference = read_with_reference(folders, against)
    found = compare_series(series, reference, asked)
    if as_json:
        typer.echo(as_json_text(found.as_json(), indent=2))
        return
    console = Console()
    console.print(labels_table(found))
    below = [legend(found), *notes(found)]
    text = "\n".join(textwrap.fill(line, 80) for line in below)
    console.print(f"\n{text}", highlight=False, markup=False, soft_wrap=True)
    if not found.finished:
        console.print("None of these runs has finished.", highlight=False)
    if deltas:
        console.print()
        console.print(deltas_table(found))
        console.print(f"\n{textwrap.fill(deltas_legend(found), 80)}", highlight=False, markup=False, soft_wrap=True)
