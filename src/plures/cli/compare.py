"""The command that puts labels side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from plures.cli import completing
from plures.cli.formats import AsForm, Form, IntoFile, Page, Told, can_be_bold, form_of, show
from plures.cli.options import AsJson
from plures.report.compare_legend import deltas_legend, legend, notes
from plures.report.compare_tables import deltas_sheet, labels_sheet
from plures.report.comparing import Asked, compare_series
from plures.report.selecting import select

Split = Annotated[Literal["train", "validation", "test"], typer.Option(help="On which of the clients' examples.")]
Model = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="global, personal, finetuned, ...; by default what a method is judged by."),
]
Alone = Annotated[
    bool, typer.Option("--alone", help="Only these runs: no Local and FedAvg from the folders beside them.")
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
    alone: Alone = False,
    form: AsForm = None,
    out: IntoFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: means over seeds, paired differences, clients helped and hurt.

    Runs that differ in their seed alone are one label. Differences are taken
    seed by seed and client by client, with a 95% bootstrap interval over both.
    Local and FedAvg come first; where they are not named, runs of them are
    looked for beside the others: on the same data, with the same rounds,
    cohorts, network and seeds.

    Example: plures compare runs/fedavg-* runs/fedalt-* --against fedavg

    For a paper: plures compare runs/study --format latex --out table.tex
    """
    asked = Asked(model=model, split=split, newcomers=newcomers)
    wanted = form_of(form, as_json=as_json, out=out)
    show_comparison(folders, against, asked, deltas=deltas, alone=alone, form=wanted, out=out)


def show_comparison(
    folders: list[Path],
    against: str | None = None,
    asked: Asked = USUAL,
    *,
    deltas: bool = False,
    alone: bool = False,
    form: Form = "table",
    out: Path | None = None,
) -> None:
    """Labels side by side, for a reader or for a program."""
    chosen = select(folders, against, alone=alone)
    found = compare_series(chosen.series, chosen.reference, asked)
    unfinished = [] if found.finished else ["None of these runs has finished."]
    means = legend(found, "bold" if can_be_bold(form, out) else "*")
    tables = [Told(sheet=labels_sheet(found), below=[means, *notes(found), *chosen.words(), *unfinished])]
    if deltas:
        tables.append(Told(sheet=deltas_sheet(found), below=[deltas_legend(found)]))
    show(Page(tables=tables, full=tables[-1].sheet, data=found.as_json() | chosen.as_json()), form, out)
