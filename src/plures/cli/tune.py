"""The command that searches for the best options of an experiment."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.console import Console
from typer.core import TyperCommand

from plures.cli import completing
from plures.cli.options import AsJson, Changes, EngineName
from plures.cli.run import INTERRUPTED
from plures.report import records
from plures.report.json_text import as_json_text
from plures.report.tables import score
from plures.report.tuning_tables import counts_line, importance_line, trials_table

if TYPE_CHECKING:
    from plures.recipes import Tuning

REFITS = 3
"""Seeds of a refit, unless told otherwise."""
WITHOUT_NUMBER = "--refit"


class TuneCommand(TyperCommand):
    """Lets --refit stand without its number."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_number(args))


def with_number(args: Sequence[str]) -> list[str]:
    """The usual number behind a --refit that has none."""
    found: list[str] = []
    for place, word in enumerate(args):
        following = args[place + 1] if place + 1 < len(args) else ""
        found += [word, str(REFITS)] if word == WITHOUT_NUMBER and not following.isdigit() else [word]
    return found


def tune(
    experiment: Annotated[
        Path,
        typer.Argument(help="A TOML file with a table \\[tune.search].", autocompletion=completing.experiment_files),
    ],
    changes: Changes = None,
    trials: Annotated[int | None, typer.Option(help="How many to try; more than before goes on.", min=1)] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each trial, seeds counted from the file's; their mean counts.", min=1)
    ] = None,
    engine: EngineName = None,
    refit: Annotated[
        int | None,
        typer.Option(
            metavar="[N]",
            min=1,
            help=f"Then run the best under N seeds ({REFITS}) with validation merged into training, and test it.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the search, by default runs/tune-FILE. There, it goes on.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    r"""Search for the best options of an experiment, on validation data alone.

    A file says what to try, by keys as for --set (examples/tune.toml):

    \[tune.search]

    "method_options.lr" = {low = 0.001, high = 1.0, log = true}

    "method_options.budget.epochs" = [1, 2, 5]

    Each trial is a run folder of its own. Bad ones are stopped early. What is
    interrupted goes on with the same command. Test data are looked at by
    --refit only, after the last round. Needs: pip install "plures\[tune]"
    """
    from plures.cli.search_progress import SearchProgress
    from plures.recipes import load_experiment
    from plures.recipes import tune as search_for

    given = [*(changes or []), *([] if engine is None else [f"engine={engine}"])]
    loaded = load_experiment(experiment, given)
    folder = out or Path(loaded.out or f"runs/tune-{experiment.stem}")
    again = {"--set": given, "--trials": trials, "--seeds": seeds, "--refit": refit, "--out": folder}
    watcher = SearchProgress(Console(stderr=True))
    with told_how_to_go_on(folder, command(experiment, again)):
        found = search_for(loaded, out=folder, trials=trials, seeds=seeds, refit=refit, watcher=watcher)
    if as_json:
        typer.echo(as_json_text(found.as_json(), indent=2))
    else:
        show(found, refitted=refit is not None)
    if found.best is None:
        raise typer.Exit(1)


def command(experiment: Path, options: dict[str, Any]) -> str:
    """The same search once more."""
    words = ["plures", "tune", str(experiment)]
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            words += [] if one is None else [name, str(one)]
    return shlex.join(words)


@contextmanager
def told_how_to_go_on(folder: Path, command: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        kept = f"; whole trials are kept in {folder}" if (folder / records.TRIALS).exists() else ""
        Console(stderr=True).print(f"interrupted{kept}. To go on:\n  {command}", highlight=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None


def show(found: Tuning, *, refitted: bool) -> None:
    """`refitted`: by this command, and not by one before."""
    console, tuning = Console(), found.as_json()

    def say(text: str) -> None:
        console.print(textwrap.fill(text, 80), highlight=False, markup=False, soft_wrap=True)

    say(counts_line(tuning))
    if found.best is None:
        say(f"No trial has finished; the last: {found.trials[-1].reason}")
        return
    console.print()
    console.print(trials_table(tuning))
    console.print()
    mattered = importance_line(tuning)
    if mattered:
        say(f"What mattered: {mattered}.")
    if found.refit is None:
        say("Test data were not looked at. With --refit, the best is trained on validation data too and then tested.")
    elif refitted:
        show_refit(found, say)
    else:
        say(earlier_refit_line(found.refit))
    console.print(f"Best configuration: {found.best_file}", highlight=False, soft_wrap=True)
    console.print(f"  plures run {shlex.quote(str(found.best_file))}", highlight=False, soft_wrap=True)


def earlier_refit_line(refit: Mapping[str, Any]) -> str:
    mean = score(refit["mean"], refit["metric"].rpartition("/")[2]).strip()
    runs = "1 run" if len(refit["seeds"]) == 1 else f"{len(refit['seeds'])} runs"
    of = "the best" if refit["of_best"] else "an older best" if refit["trial"] is None else f"trial {refit['trial']}"
    told = f"Test data were looked at before: {refit['folder']} has a refit of {of} ({refit['metric']} {mean}, {runs})."
    return told if refit["of_best"] else f"{told} That is not the best any more; --refit runs the best."


def show_refit(found: Tuning, say: Any) -> None:
    from plures.cli.compare import show_comparison

    assert found.refit is not None
    say(
        "Refit of the best, validation merged into training; test data after the last round, for there are no "
        "validation data left to choose a round by:"
    )
    Console().print()
    show_comparison([Path(found.refit["folder"])])
    Console().print()


tune_app = typer.Typer(add_completion=False)
tune_app.command("tune", cls=TuneCommand)(tune)
