"""Options and arguments that several commands have, with what completes them in a shell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plures.cli import completing

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as rounds=50 or data.clients=10. Repeatable."),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="auto, trial, workers, cached, vectorised or sequential.",
        autocompletion=completing.engines,
    ),
]
ExperimentFile = Annotated[
    Path,
    typer.Argument(help='A TOML file; method = "pflego" is a whole one.', autocompletion=completing.experiment_files),
]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; it must be new or empty.")]
RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a run.", autocompletion=completing.run_folders)
]
