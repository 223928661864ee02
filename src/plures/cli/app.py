"""The commands, each in a file of its own; none is imported before it is asked for."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, ClassVar

import typer
from rich.console import Console

import plures
from plures.cli.lazy import Lazy, LazyGroup
from plures.core.errors import PluresError
from plures.engines.memory import keep_freed_memory

# Rich takes each paragraph as one line.
EPILOG = """
[bold]Start here:[/bold]

plures demo                 every method on real digits, in about a minute

plures methods              what there is to choose from

plures run EXPERIMENT.toml  your own; method = "pflego" is a whole file

plures run EXPERIMENT.toml --set rounds=100 --set method_options.tau=20

plures run EXPERIMENT.toml --seeds 3 --beside ditto

plures compare RUN RUN...   paired differences, and whom they help and hurt

plures runs                 every run and its state; plures watch RUN: one

plures resume RUN           go on with a run that was cut

plures tune EXPERIMENT.toml the best options, chosen on validation data

plures report RUN RUN...    one page with every chart, which works offline

plures cost EXPERIMENT.toml what it will send, compute and hold, without training

plures export RUN --client 17  one client's model as a file
"""


class Commands(LazyGroup):
    """Every command: where it is, and the first line of its docstring."""

    table: ClassVar = {
        "adapt": Lazy("adapt:adapt", "Give a newcomer a personal model from a finished run, and write it to a file."),
        "advise": Lazy("advise:advise", "Try which part of the network should be personal."),
        "clients": Lazy("clients:clients", "Show a run client by client: who fares worst, who is helped, who is hurt."),
        "compare": Lazy(
            "compare:compare",
            "Compare runs: means over seeds, paired differences, clients helped and hurt.",
        ),
        "cost": Lazy(
            "cost:cost",
            "Tell what an experiment will cost, without training it; the data need not be there.",
        ),
        "data": Lazy("data:data_app", "Data sets: what there is, what is in one, and how to get it."),
        "demo": Lazy("demo:demo", "Compare all methods on real handwritten digits, 20 clients with 2 classes each."),
        "deploy": Lazy("deploy:deploy_app", "Run a method between a server and nodes that keep their data."),
        "doctor": Lazy("doctor:doctor", "Look at every file of a run or a study, and repair what can be repaired."),
        "export": Lazy("export:export", "Write one client's complete model to a file."),
        "gates": Lazy("gates:gates", "Group the clients of a run by how alike their gates are (Ward)."),
        "methods": Lazy(
            "methods:methods",
            "List every method: its paper, what is shared, what is personal, what is sent.",
        ),
        "new-method": Lazy(
            "methods:new_method",
            "Write a new method, its test row, oracle, tests and page; all of it passes as it is.",
        ),
        "paper": Lazy(
            "paper:paper",
            "Rerun the tables and figures of a paper, and put them beside the published ones.",
        ),
        "report": Lazy("report:report", "Make one HTML page about runs, which works offline."),
        "resume": Lazy("resume:resume", "Go on with a run or a study that was interrupted or killed."),
        "run": Lazy("run:run", "Run an experiment file and write its results to a folder."),
        "runs": Lazy("runs:runs", "List the runs below a folder, newest first, with their state."),
        "split": Lazy("methods:split", "Show each parameter of a model, whose it is and how large, with totals."),
        "tune": Lazy("tune:tune_app", "Search for the best options of an experiment, on validation data alone."),
        "watch": Lazy("watch:watch", "Follow a run from another terminal until it ends."),
    }


app = typer.Typer(
    name="plures",
    cls=Commands,
    help="Personalised federated learning: out of one shared model, many personal ones.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
err_console = Console(stderr=True)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        typer.echo(f"plures {plures.__version__}")
        raise typer.Exit


def interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run a command; errors of ours are one clear message, not a traceback."""
    sys.path.insert(0, str(Path.cwd()))
    keep_freed_memory()
    for name in ("SIGTERM", "SIGHUP"):  # as clusters end a job, and a closed terminal: keep whole rounds, as at Ctrl-C
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup has it ignored
            signal.signal(number, interrupted)
    try:
        app(prog_name="plures")
    except PluresError as error:
        err_console.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)
