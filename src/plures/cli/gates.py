"""The command that groups clients by their gates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from plures.cli import completing
from plures.cli.options import AsJson
from plures.report.json_text import as_json_text


def gates(
    run: Annotated[
        Path,
        typer.Argument(help="The folder of a finished run of pfedgate.", autocompletion=completing.run_folders),
    ],
    groups: Annotated[int, typer.Option(help="Into how many groups to put the clients.", min=1)] = 4,
    plot: Annotated[Path | None, typer.Option(help="Draw the dendrogram to a file such as gates.png.")] = None,
    as_json: AsJson = False,
) -> None:
    """Group the clients of a run by how alike their gates are (Ward).

    Tells whether clients with like gates have like labels: Spearman's
    correlation of gate distance and Jaccard distance of label sets over all
    pairs, with a p-value from permutations of the clients.
    """
    from plures.recipes.gate_clusters import draw_dendrogram, gate_clusters  # scipy takes a second to import

    found = gate_clusters(run)
    if plot is not None:
        draw_dendrogram(found, plot)
    if as_json:
        typer.echo(as_json_text(found.clusters.as_json() | {"names": found.names, "labels": found.labels}, indent=2))
        return
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("group", "clients", "labels"):
        table.add_column(heading)
    for number, clients in found.clusters.groups(groups).items():
        names = ", ".join(found.names[client] for client in clients)
        labels = sorted({label for client in clients for label in found.labels[client]})
        table.add_row(str(number), names, ", ".join(map(str, labels)))
    console.print(table)
    console.print(
        f"\nGate distance against label distance: Spearman {found.clusters.correlation:.3f}, "
        f"p = {found.clusters.p_value:.4f}",
        highlight=False,
    )
    if plot is not None:
        console.print(f"Dendrogram: {plot}", highlight=False, soft_wrap=True)
