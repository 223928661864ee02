"""The command that writes one client's model to a file."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from plures.cli.options import AsJson, RunArgument
from plures.report.json_text import as_json_text
from plures.report.tables import score

if TYPE_CHECKING:
    from plures.recipes.exporting import Exported

FormatOption = Annotated[
    Literal["safetensors", "torch", "onnx"] | None,
    typer.Option("--format", help="safetensors, torch (.pt2) or onnx; by default as --out ends, else safetensors."),
]
OutFile = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="The file to write.")]
Prepared = Annotated[
    bool, typer.Option("--prepared", help="The model will be given prepared inputs, not raw pixels or rows.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if there is one.")]


def export(
    run: RunArgument,
    client: Annotated[str, typer.Option(metavar="CLIENT", help="The client's number or name.")],
    model: Annotated[
        Literal["personal", "global", "finetuned", "guarded"] | None,
        typer.Option(help="Another model than the one that the method is judged by."),
    ] = None,
    format: FormatOption = None,
    out: OutFile = None,
    prepared: Prepared = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write one client's complete model to a file.

    It is the model as the client predicts with it: personal layers, twins,
    masks, gates and statistics put in; with a guard, what the client chose.
    The file is tried on the client's test examples before it is kept.

    safetensors  weights and all that is known of the model, for
                 plures.load_client(FILE); other programs read the tensors

    torch        a program for torch.export.load, without Plures

    onnx         a program for onnxruntime; pip install "plures\\[onnx]"

    Example: plures export runs/first --client 17 --format onnx
    """
    from plures.recipes import export_client, load_run

    result = load_run(run)
    made = export_client(result, client, out, format=format, model=model, prepared=prepared, overwrite=force)
    if as_json:
        typer.echo(as_json_text(made.as_json(), indent=2))
        return
    show_lines(told(made))


def show_lines(lines: Sequence[str]) -> None:
    """Sentences in lines of 80 columns; a path is never broken."""
    for line in lines:
        text = line if line.startswith("Wrote ") else textwrap.fill(line, 80, subsequent_indent="  ")
        Console().print(text, highlight=False, markup=False, soft_wrap=True)


def told(made: Exported) -> list[str]:
    """What was written, for a reader."""
    kind = made.model if made.chosen is None else f"{made.chosen}, as it chose under the guard"
    lines = [f"Client {made.name}: {kind} model, {made.format}, {made.bytes:,} bytes.", f"It takes {made.inputs}."]
    if made.value is not None:
        found = f"On its {made.examples} test items: {made.metric} {score(made.value, made.metric).strip()}"
        recorded = "" if made.recorded is None else f" (recorded: {score(made.recorded, made.metric).strip()})"
        lines.append(f"{found}{recorded}; outputs of the file differ from the run's by {made.apart:.1g} at most.")
    return [*lines, f"Wrote {made.path}"]
