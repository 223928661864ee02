"""The commands about methods and splits: what there is, a new one, whose each parameter is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table

from plures.cli import completing
from plures.cli.options import AsJson as AsJson

if TYPE_CHECKING:
    from plures.parts import BufferPolicy


def methods(
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a table in Markdown.")] = False,
    write: Annotated[
        bool, typer.Option("--write", help="In a checkout: write the tables of README and docs anew.")
    ] = False,
) -> None:
    """List every method: its paper, what is shared, what is personal, what is sent."""
    from plures.methods import METHODS
    from plures.recipes.new_method import methods_table, write_tables

    if write:
        typer.echo(
            "\n".join(f"changed {path}" for path in write_tables(Path.cwd())) or "The tables are as they should be."
        )
        return
    if as_markdown:
        typer.echo(methods_table())
        return
    if as_json:
        fields = ("name", "title", "paper", "shared", "personal", "sent", "file")
        typer.echo(json.dumps([{key: getattr(info, key) for key in fields} for info in METHODS.values()], indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    table.add_column("paper", min_width=16)
    for heading in ("shared", "personal", "sent"):
        table.add_column(heading)
    for info in METHODS.values():
        table.add_row(info.name, info.paper, info.shared, info.personal, info.sent)
    Console().print(table)


def new_method(
    name: Annotated[str, typer.Argument(help="The method's name, as in method = NAME: small letters, digits and _.")],
    title: Annotated[str | None, typer.Option(help="How tables and pages call it; by default its name.")] = None,
) -> None:
    """Write a new method, its test row, oracle, tests and page; all of it passes as it is.

    In a checkout of Plures the files go where they belong; elsewhere the method
    and a test are written here, for method = "NAME:NAME" in an experiment file.
    """
    from plures.recipes.new_method import CHANGED, is_checkout, write_method

    here = Path.cwd()
    written = write_method(name, here, title=title)
    for path in written:
        typer.echo(f"{'changed' if path in CHANGED else 'wrote'} {path}")
    if is_checkout(here):
        golden = ["-m", "tests.golden.make", name]
        subprocess.run([sys.executable, *golden], cwd=here, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
        typer.echo(f"wrote tests/golden/curves/{name}.json")
        typer.echo("\nAll of it passes the tests as it is. docs/recipes/add-a-method.md says how to go on; then:")
        typer.echo("  make format && .venv/bin/plures methods --write")
        typer.echo(f"  OMP_NUM_THREADS=1 .venv/bin/python {' '.join(golden)}")
        typer.echo(f"  make check && make test ARGS='-k \"{name} or every_method or table_of\"'")
    else:
        typer.echo(f'\nTry it: pytest test_{name}.py, or plures run with method = "{name}:{name}" in a file.')


def split(
    model: Annotated[
        str,
        typer.Argument(help='A model by name ("mlp") or as package.module:function.', autocompletion=completing.models),
    ],
    personal: Annotated[
        list[str] | None, typer.Option(help='What is personal: a role ("head") or a pattern ("head.*"). Repeatable.')
    ] = None,
    buffers: Annotated[str | None, typer.Option(help="Running statistics: shared, personal or reset.")] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option of the model. Repeatable.")
    ] = None,
) -> None:
    """Show each parameter of a model, whose it is and how large, with totals."""
    from plures.parts import split as make_split
    from plures.recipes.networks import build_module
    from plures.recipes.overrides import apply_override

    given: dict[str, Any] = {}
    for option in options or []:
        apply_override(given, option)
    module = build_module(model, given, None, None)
    policy = cast("BufferPolicy | None", buffers)  # another word is refused by the split itself
    typer.echo(make_split(personal or ["head"], buffers=policy).table(module))
