"""The command that shows a run client by client."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from plures.cli import completing
from plures.cli.compare import Model, Newcomers, Split
from plures.cli.options import AsJson
from plures.report.client_report import client_report
from plures.report.client_tables import clients_table, shown_rows, summary_lines
from plures.report.clients import in_order
from plures.report.comparing import Asked
from plures.report.json_text import as_json_text


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
    as_json: AsJson = False,
) -> None:
    """Show a run client by client: who fares worst, who is helped, who is hurt.

    A study's seeds are averaged. With more than 30 clients the table has the
    15 worst and the 15 best; --json has all of them, with their labels.

    Example: plures clients runs/fedalt --against runs/fedavg --worst 10
    """
    asked = Asked(model=model, split=split, newcomers=newcomers)
    report = client_report(folder, asked, label=label, against=against)
    order = in_order(report, sort)
    rows = [*order.known, *order.unknown]
    if as_json:
        typer.echo(as_json_text(report.as_json() | {"clients": [row.as_json() for row in rows]}, indent=2))
        return
    console = Console()
    first, last = shown_rows(order, worst)
    console.print(clients_table(report, first, last))
    hidden = len(rows) - len(first) - len(last)
    if hidden:
        console.print(
            f"\n{hidden} of {len(rows)} clients are not shown; --worst N shows N, --json all.", highlight=False
        )
    lines = [textwrap.fill(line, 80, subsequent_indent="  ") for line in summary_lines(report)]
    console.print("\n" + "\n".join(lines), highlight=False, markup=False, soft_wrap=True)
