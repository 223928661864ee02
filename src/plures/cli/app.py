"""The commands, each from a file of its own; the demo is here."""

from __future__ import annotations

import signal
import sys
import textwrap
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

import plures
from plures.cli.advise import advise
from plures.cli.clients import clients
from plures.cli.compare import compare
from plures.cli.cost import cost
from plures.cli.data import data_app
from plures.cli.gates import gates
from plures.cli.methods import AsJson, methods, new_method, split
from plures.cli.progress import make_watcher
from plures.cli.report import report
from plures.cli.run import Out, default_folder, run, told_where
from plures.core.errors import PluresError
from plures.methods import METHODS
from plures.recipes import run_experiment
from plures.recipes.demo import ROUNDS, run_demo, shown
from plures.report import records
from plures.report.tables import comparison_table

# Rich takes each paragraph as one line.
EPILOG = """
[bold]Start here:[/bold]

plures demo                 every method on real digits, in about a minute

plures methods              what there is to choose from

plures run EXPERIMENT.toml  your own; method = "pflego" is a whole file

plures run EXPERIMENT.toml --set rounds=100 --set method_options.tau=20

plures run EXPERIMENT.toml --seeds 3 --beside local --beside fedavg

plures compare RUN RUN...   paired differences, and whom they help and hurt

plures report RUN RUN...    one page with every chart, which works offline

plures cost EXPERIMENT.toml what it will send, compute and hold, without training
"""

app = typer.Typer(
    name="plures",
    help="Personalised federated learning: out of one shared model, many personal ones.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data")


out_console = Console()
err_console = Console(stderr=True)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        typer.echo(f"plures {plures.__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Out = None,
    rounds: Annotated[int, typer.Option(help="Rounds of each method.", min=1)] = ROUNDS,
    seed: Annotated[int, typer.Option(help="Seed of weights, cohorts and batches.")] = 0,
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
    out_console.print(f"\n{textwrap.fill(legend(folder), 80)}\n", highlight=False, soft_wrap=True)
    out_console.print(f"Results: {folder}", highlight=False, soft_wrap=True)
    out_console.print(
        f"Try next: plures methods\n          plures run {folder}/pflego/experiment.toml \\\n"
        "              --set method_options.tau=10",
        highlight=False,
        soft_wrap=True,
    )


def legend(folder: Path) -> str:
    """What the columns of the demo's table are; which model was scored is in the records."""
    judged: dict[str, list[str]] = {}
    for method in shown():
        headline = records.read_result(folder / method)["headline"]
        judged.setdefault(headline, []).append(METHODS[method].title)
    return (
        "personal: test accuracy of the model a method is judged by, examples pooled: the clients' own, the one "
        f"shared model ({', '.join(judged['global'])}), or the clients' after fine-tuning "
        f"({', '.join(judged['finetuned'])}). bottom 10%: where the clients that fare worst begin. helped, hurt: "
        "clients better or worse off than with FedAvg. sent: all bytes up and down. FedBN has a batch norm more."
    )


app.command()(advise)
app.command()(clients)
app.command()(compare)
app.command()(cost)
app.command()(gates)
app.command()(methods)
app.command()(new_method)
app.command()(report)
app.command()(run)
app.command()(split)


def interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run a command; errors of ours are one clear message, not a traceback."""
    sys.path.insert(0, str(Path.cwd()))
    signal.signal(signal.SIGTERM, interrupted)  # as clusters end a job: keep the whole rounds, as at Ctrl-C
    try:
        app()
    except PluresError as error:
        err_console.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)
