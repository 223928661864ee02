"""The commands: run, demo, methods, split."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import plures
from plures.cli.progress import make_watcher
from plures.core.errors import PluresError
from plures.methods import METHODS
from plures.parts import split as make_split
from plures.recipes import load_experiment, run_experiment
from plures.recipes.build import build_module
from plures.recipes.demo import ROUNDS, run_demo
from plures.recipes.experiment import apply_override
from plures.recipes.folder import as_json_text
from plures.recipes.new_method import is_checkout, methods_table, write_method
from plures.report.tables import comparison_table, metrics_table

# Rich takes each paragraph as one line.
EPILOG = """
[bold]Start here:[/bold]

plures demo                 every method on real digits, in about a minute

plures methods              what there is to choose from

plures run EXPERIMENT.toml  your own; method = "pflego" is a whole file

plures run EXPERIMENT.toml --set rounds=100 --set method_options.tau=20
"""

app = typer.Typer(
    name="plures",
    help="Personalised federated learning: out of one shared model, many personal ones.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130
"""The exit code of a process that Ctrl-C ended."""

out_console = Console()
err_console = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        typer.echo(f"plures {plures.__version__}")
        raise typer.Exit


@app.command()
def run(
    experiment: Annotated[Path, typer.Argument(help='A TOML file; method = "pflego" is a whole one.')],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a key, such as rounds=50 or data.clients=10. Repeatable."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; it must be new or empty.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run an experiment file and write its results to a folder.

    The folder holds the resolved configuration, one line per round, one row
    per client and evaluation, the final shared and personal parameters, and
    result.json. examples/experiment.toml explains every key of such a file.
    """
    loaded = load_experiment(experiment, changes or [])
    folder = out or (Path(loaded.out) if loaded.out else default_folder(loaded.method))
    with told_where(folder):
        result = run_experiment(loaded, out=folder, watcher=make_watcher(err_console))
    if as_json:
        typer.echo(as_json_text(result.as_json(), indent=2))
        return
    out_console.print(metrics_table(result.as_json()["metrics"]))
    if result.selected_round is not None:
        out_console.print(f"\nBest on validation: round {result.selected_round}.", highlight=False)
    out_console.print(f"Results: {folder}", highlight=False, soft_wrap=True)


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="Folder for the results; it must be new or empty.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of each method.", min=1)] = ROUNDS,
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare all methods on real handwritten digits, 20 clients with 2 classes each."""
    folder = out or default_folder("demo")
    if not as_json:
        out_console.print("20 clients, each with 2 of the 10 digits. What should be shared, what personal?\n")
    with told_where(folder):
        rows = run_demo(folder, run_experiment, rounds=rounds, seed=seed, watcher=make_watcher(err_console))
    if as_json:
        typer.echo((folder / "comparison.json").read_text(encoding="utf-8").rstrip())
        return
    out_console.print()
    out_console.print(comparison_table(rows))
    out_console.print(
        "\npersonal: test accuracy of the model a method is judged by, examples pooled: the\n"
        "clients' own, the one shared model (FedAvg, FedProx, SCAFFOLD), or the clients'\n"
        "after fine-tuning (FedAvg-FT, FedRecon, FedBABU, Per-FedAvg). bottom 10%: where\n"
        "the clients that fare worst begin. helped, hurt: clients better or worse off\n"
        "than with FedAvg. sent: all bytes up and down. FedBN has a batch norm more.\n",
        highlight=False,
        soft_wrap=True,
    )
    out_console.print(f"Results: {folder}", highlight=False, soft_wrap=True)
    out_console.print(
        f"Try next: plures methods\n          plures run {folder}/pflego/experiment.toml --set method_options.tau=10",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def methods(
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a table in Markdown.")] = False,
) -> None:
    """List every method: its paper, what is shared, what is personal, what is sent."""
    if as_markdown:
        typer.echo(methods_table())
        return
    if as_json:
        fields = ("name", "title", "paper", "shared", "personal", "sent", "file")
        typer.echo(json.dumps([{key: getattr(info, key) for key in fields} for info in METHODS.values()], indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    for heading in ("paper", "shared", "personal", "sent"):
        table.add_column(heading, min_width=16)
    for info in METHODS.values():
        table.add_row(info.name, info.paper, info.shared, info.personal, info.sent)
    out_console.print(table)


@app.command()
def new_method(
    name: Annotated[str, typer.Argument(help="The method's name, as in method = NAME: small letters, digits and _.")],
    title: Annotated[str | None, typer.Option(help="How tables and pages call it; by default its name.")] = None,
) -> None:
    """Write a new method, its test row, oracle, tests and page; all of it passes as it is.

    In a checkout of Plures the files go where they belong; elsewhere the method
    and a test are written here, for method = "NAME:NAME" in an experiment file.
    """
    here = Path.cwd()
    written = write_method(name, here, title=title)
    for path in written:
        typer.echo(f"wrote {path}")
    if is_checkout(here):
        golden = ["-m", "tests.golden.make", name]
        subprocess.run([sys.executable, *golden], cwd=here, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
        typer.echo(f"wrote tests/golden/curves/{name}.json")
        typer.echo(f"\nWrite your method into {written[0]}, its pseudo-code into {written[2]}. Then:")
        typer.echo(f"  OMP_NUM_THREADS=1 .venv/bin/python {' '.join(golden)}")
        typer.echo(f"  make check && make test ARGS='-k {name}'")
    else:
        typer.echo(f'\nTry it: pytest test_{name}.py, or plures run with method = "{name}:{name}" in a file.')


@app.command()
def split(
    model: Annotated[str, typer.Argument(help='A model by name ("mlp") or as package.module:function.')],
    personal: Annotated[
        list[str] | None, typer.Option(help='What is personal: a role ("head") or a pattern ("head.*"). Repeatable.')
    ] = None,
    buffers: Annotated[str | None, typer.Option(help="Running statistics: shared, personal or reset.")] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option of the model. Repeatable.")
    ] = None,
) -> None:
    """Show each parameter of a model, whose it is and how large, with totals."""
    given: dict[str, Any] = {}
    for option in options or []:
        apply_override(given, option)
    module = build_module(model, given, None, None)
    typer.echo(make_split(personal or ["head"], buffers=buffers).table(module))  # type: ignore[arg-type]


@contextmanager
def told_where(folder: Path) -> Iterator[None]:
    """On Ctrl-C, say where the whole rounds are, if there are any."""
    try:
        yield
    except KeyboardInterrupt:
        kept = f"; the whole rounds are kept in {folder}" if folder.exists() else ""
        err_console.print(f"interrupted{kept}", highlight=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None


def default_folder(name: str) -> Path:
    """A new folder below runs/, named by the time."""
    wanted = Path("runs") / f"{name.rpartition(':')[2]}-{datetime.now():%Y%m%d-%H%M%S}"
    names = chain([wanted], (Path(f"{wanted}-{number}") for number in count(2)))
    return next(path for path in names if not path.exists())


def main() -> None:
    """Run a command; errors of ours are one clear message, not a traceback."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        app()
    except PluresError as error:
        err_console.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)
