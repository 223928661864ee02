"""The command that runs an experiment file: once, or under several seeds and with other methods beside it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from plures.cli import completing
from plures.cli.options import AsJson, EngineName, ExperimentFile
from plures.cli.options import Changes as Changes
from plures.cli.options import Out as Out
from plures.core.errors import InvalidConfig
from plures.report.cost_tables import cost_line
from plures.report.json_text import as_json_text
from plures.report.metric_tables import metrics_table
from plures.report.tables import points, score, stages_table

if TYPE_CHECKING:
    from plures.recipes import Experiment, RunResult

INTERRUPTED = 130
"""The exit code of a process that Ctrl-C ended."""


def run(
    experiment: ExperimentFile,
    changes: Changes = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N", help="So many seeds, counted from the file's; or a list of them, such as 0,7,8."),
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD",
            help="Also this method, on the same data and cohorts. Repeatable.",
            autocompletion=completing.methods,
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="With --seeds or --beside: not also local, fedavg and finetune.")
    ] = False,
    engine: EngineName = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRACKER",
            help="Also tell tensorboard, wandb or mlflow the numbers of each round. Repeatable.",
            autocompletion=completing.trackers,
        ),
    ] = None,
    out: Out = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the run or study in --out from its last checkpoint, if there is one."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment file and write its results to a folder.

    The folder holds the resolved configuration, one line per round, one row
    per client and evaluation, the final shared and personal parameters, and
    result.json. examples/experiment.toml explains every key of such a file.

    With --seeds or --beside it holds a run for each seed and method, and what
    is shown are means over seeds and paired differences, as by plures compare.
    Local, FedAvg and FedAvg with fine-tuning run beside it too; --alone leaves
    them out:

    plures run FILE --seeds 3 --beside ditto

    A run that was interrupted or killed goes on as if it had not been, with
    the same result to the bit:

    plures run FILE --out RUN --resume, or plures resume RUN
    """
    from plures.cli.compare import show_comparison
    from plures.cli.progress import make_watcher
    from plures.recipes import load_experiment, run_experiment, run_study

    loaded = load_experiment(experiment, [*(changes or []), *([] if engine is None else [f"engine={engine}"])])
    loaded = loaded.model_copy(update={"track": loaded.track.also(track or [])})
    folder = out or (Path(loaded.out) if loaded.out else None)
    if resume and folder is None:
        raise InvalidConfig("--resume needs the folder of the run: --out RUN. `plures runs` lists runs.")
    folder = folder or default_folder(loaded.method)
    watcher = make_watcher(Console(stderr=True))
    with told_where(folder):
        if seeds is not None or beside:
            chosen = [loaded.seed] if seeds is None else read_seeds(seeds, loaded)
            run_study(
                loaded,
                out=folder,
                seeds=chosen,
                beside=beside or [],
                usual=not alone,
                watcher=watcher,
                resume=resume,
            )
            show_comparison([folder], alone=alone, form="json" if as_json else "table")
        else:
            show_result(run_experiment(loaded, out=folder, watcher=watcher, resume=resume), as_json=as_json)
    if not as_json:
        Console().print(f"Results: {folder}", highlight=False, soft_wrap=True)


def read_seeds(text: str, experiment: Experiment) -> list[int]:
    """ "3": so many, from the file's own on; "0,7,8": these."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise InvalidConfig(f"--seeds {text}: give a number of seeds, or seeds such as 0,7,8.") from None
    if "," in text:
        return numbers
    if numbers[0] < 1:
        raise InvalidConfig(f"--seeds {text}: give one or more.")
    return list(range(experiment.seed, experiment.seed + numbers[0]))


def show_result(result: RunResult, *, as_json: bool) -> None:
    """What a run found, for a reader or for a program."""
    if as_json:
        typer.echo(as_json_text(result.as_json(), indent=2))
        return
    console = Console()
    if "started_from" in result.facts and not result.stages:
        started = result.facts["started_from"]
        console.print(f"Started from {started['weights']}: {started['report']}\n", highlight=False)
    console.print(metrics_table(result.as_json()["metrics"]))
    if result.stages:
        console.print()
        console.print(stages_table(result.as_json()["stages"]))
    if result.selected_round is not None:
        console.print(f"\nThe above is round {result.metrics_round}; {selected_line(result)}", highlight=False)
    engine = f"Engine: {result.facts['engine']} ({result.facts['engine_reason']})."
    told = (targets_line(result), gap_line(result), guard_line(result), lost_line(result))
    for line in (*told, engine, cost_line(result.cost)):
        if line:
            console.print(textwrap.fill(line, 80), highlight=False, soft_wrap=True)


def selected_line(result: RunResult) -> str:
    """The round that is best on validation data, with what it has on test data."""
    name = result.selected_by.replace("/validation/", "/test/")
    found = result.selected_metrics.get(name)
    shown = "" if found is None else f", {name} {score(found.weighted, result.metric)}"
    return f"best on validation: round {result.selected_round}{shown}."


def targets_line(result: RunResult) -> str:
    """In which round each target was reached, if some were set."""
    found = result.rounds_to.get("targets", {})
    told = ", ".join(f"{target} in round {round}" for target, round in found.items())
    return f"{result.rounds_to['metric']} reached {told}." if told else ""


def lost_line(result: RunResult) -> str:
    """How many visits were lost, and to what; those that were called in vain were not needed."""
    lost = {kind: count for kind, count in result.lost.items() if kind != "surplus"}
    if not lost:
        return ""
    called = sum(len(line["cohort"]) for line in result.history) - result.lost.get("surplus", 0)
    kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in lost.items())
    return f"Lost: {sum(lost.values()) / called:.1%} of visits ({kinds}); rounds.jsonl names each."


def gap_line(result: RunResult) -> str:
    """How newcomers fare beside participants."""
    gap = result.gap
    if gap is None:
        return ""
    theirs = score(result.metrics[gap.newcomers].weighted, result.metric)
    apart = f"{points(abs(gap.weighted), result.metric)} {'worse' if gap.weighted > 0 else 'better'}"
    ours = score(result.metrics[gap.participants].weighted, result.metric)
    return f"Newcomers ({gap.clients}): {gap.newcomers} {theirs}, {apart} than participants' {ours}."


def guard_line(result: RunResult) -> str:
    """Whom personalisation hurts without and with the guard."""
    if not result.guard:
        return ""
    found = result.guard["helped_and_hurt"].get("test")
    line = f"Guard: {result.guard['own_model']} of {result.guard['clients']} clients take their own model"
    if found is None:
        return f"{line}."
    before, after = found["before"], found["after"]
    return (
        f"{line}; hurt {before['hurt']} before, {after['hurt']} after; helped {before['helped']} before, "
        f"{after['helped']} after (test, against {result.guard['against']})."
    )


@contextmanager
def told_where(folder: Path) -> Iterator[None]:
    """On Ctrl-C, say where the whole rounds are, if there are any, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        kept = f"; the whole rounds are kept in {folder}; plures resume {folder} goes on" if folder.exists() else ""
        Console(stderr=True).print(f"interrupted{kept}", highlight=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None


def default_folder(name: str) -> Path:
    """A new folder below runs/, named by the time."""
    wanted = Path("runs") / f"{name.rpartition(':')[2]}-{datetime.now():%Y%m%d-%H%M%S}"
    names = chain([wanted], (Path(f"{wanted}-{number}") for number in count(2)))
    return next(path for path in names if not path.exists())
