"""The command `plures data show`: the federation of an experiment file, before anything is trained."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plures.cli.options import AsJson, Changes, ExperimentFile
from plures.report.json_text import as_json_text

if TYPE_CHECKING:
    from plures.data import Federation
    from plures.data.showing import ClientRow
    from plures.recipes.experiment import Data


def show(
    experiment: ExperimentFile,
    changes: Changes = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture (needs the extra 'plot').")] = None,
    as_json: AsJson = False,
) -> None:
    """Show who has how much of what in the federation of an experiment file."""
    from plures.data.showing import rows_of, text_of
    from plures.recipes.experiment import load_experiment
    from plures.recipes.federations import build_federation, without_newcomers

    loaded = load_experiment(experiment, changes or [])
    federation = build_federation(loaded)
    rows = rows_of(federation)
    title = title_of(loaded.data, federation)
    _, newcomers = without_newcomers(loaded, federation)
    outside = [] if newcomers is None else list(newcomers.names)
    if png is not None:
        # Not at the top: matplotlib is an extra, and slow to import.
        from plures.data.drawing import draw

        draw(rows, federation.classes, title, png)
    if as_json:
        typer.echo(as_json_text(json_of(rows, federation, outside), indent=2))
        return
    typer.echo(f"{title}\n\n{text_of(rows, federation.classes)}")
    if outside:
        typer.echo(f"Newcomers, which take no part in training: {len(outside):,} of the {len(rows):,} clients.")
    if png is not None:
        typer.echo(f"Picture: {png}")


def title_of(data: Data, federation: Federation) -> str:
    """Such as "digits dealt by by_class to 20 clients (seed 0)"."""
    from plures.recipes.federations import source_of

    return f"{source_of(data)[0]}, {data.partition}, {federation.num_clients:,} clients, seed {data.seed}"


def json_of(rows: list[ClientRow], federation: Federation, outside: list[str]) -> dict[str, Any]:
    held_out = set(outside)
    return {
        "num_clients": federation.num_clients,
        "num_classes": federation.classes,
        "label_space": federation.label_space,
        "fingerprint": federation.fingerprint(),
        "clients": [asdict(row) | {"newcomer": row.name in held_out} for row in rows],
    }
