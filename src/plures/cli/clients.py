"""The command that shows a run client by client."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plures.cli import completing
from plures.cli.compare import Model, Newcomers, Split
from plures.cli.formats import AsForm, IntoFile, Page, Told, form_of, show
from plures.cli.options import AsJson
from plures.report.client_report import client_report
from plures.report.client_tables import clients_sheet, shown_rows, summary_lines
from plures.report.clients import in_order
from plures.report.comparing import Asked


def clients(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN-or-STUDY",
            help="The folder of a run, or of a study.",
            autocompletion=completing.run_folders,
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RUN-or-STUDY",
            help="What to compare each client with; also a label of the same study, or stage-a: the model that a "
            "pipeline began with.",
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Which label of a study.")] = None,
    sort: Annotated[
        str | None,
        typer.Option(metavar="BY", help="delta, examples, name, or a metric such as accuracy; worst first."),
    ] = None,
    worst: Annotated[int | None, typer.Option(metavar="N", help="Show the first N only.", min=1)] = None,
    model: Model = None,
    split: Split = "test",
    newcomers: Newcomers = False,
    form: AsForm = None,
    out: IntoFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a run client by client: who fares worst, who is helped, who is hurt.

    A study's seeds are averaged. With more than 30 clients the table has the
    15 worst and the 15 best; --format csv has all of them, and --json also
    their labels.

    Example: plures clients runs/fedalt --against runs/fedavg --worst 10
    """
    asked = Asked(model=model, split=split, newcomers=newcomers)
    report = client_report(folder, asked, label=label, against=against)
    order = in_order(report, sort)
    rows = [*order.known, *order.unknown]
    first, last = shown_rows(order, worst)
    hidden = len(rows) - len(first) - len(last)
    told = [f"{hidden} of {len(rows)} clients are not shown; --worst N shows N, --json all.", ""] if hidden else []
    page = Page(
        tables=[Told(sheet=clients_sheet(report, first, last), below=[*told, *summary_lines(report)], hang="  ")],
        full=clients_sheet(report, rows if worst is None else rows[:worst]),
        data=report.as_json() | {"clients": [row.as_json() for row in rows]},
    )
    show(page, form_of(form, as_json=as_json, out=out), out)
