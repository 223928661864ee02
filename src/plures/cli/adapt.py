"""The command that gives a newcomer a model from a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from plures.cli.export import Force, FormatOption, OutFile, Prepared, show_lines
from plures.cli.options import AsJson, RunArgument
from plures.report.json_text import as_json_text
from plures.report.tables import score

if TYPE_CHECKING:
    from plures.recipes import Adapted

HOLD_OUT = 0.2
"""As that of `plures.adapt`, which takes seconds to import."""


def adapt(
    run: RunArgument,
    data: Annotated[Path, typer.Option(metavar="FILE", help="The newcomer's examples: .npz, .safetensors or .csv.")],
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The target of a csv file; by default its last column.")
    ] = None,
    hold_out: Annotated[
        float, typer.Option(metavar="SHARE", help="Examples kept out of training, to compare models on; 0: none.")
    ] = HOLD_OUT,
    capacity: Annotated[
        float | None, typer.Option(help="What it can afford, where clients of the run differ in that.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Draws the examples to keep out; by default the run's.")] = None,
    format: FormatOption = None,
    out: OutFile = None,
    prepared: Prepared = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Give a newcomer a personal model from a finished run, and write it to a file.

    The newcomer gets its model as the run's method makes one for clients that
    were never trained on; the run stays as it is. Arrays are called inputs and
    targets, in the form of the run's data: bytes of images, rows of a table,
    tokens. Targets are class numbers or their names.

    Example: plures adapt runs/first --data mine.npz --format onnx
    """
    from plures.recipes import adapt as adapt_newcomer
    from plures.recipes import load_run
    from plures.recipes.exporting import check_free
    from plures.recipes.newcomer_files import read_given
    from plures.recipes.newcomers import file_of

    check_free(file_of(out, format), overwrite=force)
    result = load_run(run)
    given = read_given(data, result.federation, target)
    made = adapt_newcomer(result, given.inputs, given.targets, hold_out=hold_out, capacity=capacity, seed=seed)
    written = made.save(out, format=format, prepared=prepared, overwrite=force)
    if as_json:
        typer.echo(as_json_text(made.as_json() | {"file": written.as_json()}, indent=2))
        return
    show_lines([f"The newcomer has {examples(made.train)} to train on: {made.way}."])
    if made.before is not None and made.after is not None:
        Console().print()
        Console().print(scores_table(made))
        Console().print()
    show_lines([*verdict(made), *made.notes, f"It takes {written.inputs}.", f"Wrote {written.path}"])


def examples(count: int) -> str:
    return "1 example" if count == 1 else f"{count} examples"


def scores_table(made: Adapted) -> Table:
    """Before and after, on examples that were kept out."""
    assert made.before is not None
    assert made.after is not None
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(f"on {examples(made.held_out)} kept out", no_wrap=True)
    for metric in made.after.values:
        table.add_column(metric, justify="right")
    for title, found in ((made.begins, made.before), ("its own model", made.after)):
        table.add_row(title, *(score(value, metric).strip() for metric, value in found.values.items()))
    return table


def verdict(made: Adapted) -> list[str]:
    """A word where its own model is the worse one."""
    goal = made.result.federation.goal
    if made.before is None or made.after is None:
        return ["No examples were kept out: how good the model is remains to be seen."]
    before, after = made.before.values[goal.judged_by], made.after.values[goal.judged_by]
    worse = after < before if goal.larger_is_better else after > before
    return [f"On these examples its own model is worse than the {made.begins}."] if worse else []
