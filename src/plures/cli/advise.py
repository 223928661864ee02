"""The command that tells which part of a network should be personal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from plures.cli.options import AsJson, Changes, ExperimentFile, Out
from plures.cli.run import default_folder, told_where
from plures.report import records
from plures.report.json_text import as_json_text
from plures.report.scales import in_percent
from plures.report.tables import percent, points, score, signed

if TYPE_CHECKING:
    from plures.recipes.advising import Advice

ROUNDS, PRETRAIN = 10, 20
COLUMNS = ("personal", "share", "validation", "gain", "per 1,000", "per MB", "hurt")


def advise(
    experiment: ExperimentFile,
    changes: Changes = None,
    rounds: Annotated[int, typer.Option(help="Rounds with each part personal.", min=1)] = ROUNDS,
    pretrain: Annotated[
        int,
        typer.Option(help="Rounds of fedavg before them, once for all; a file's own [pipeline] has its own.", min=1),
    ] = PRETRAIN,
    seeds: Annotated[int, typer.Option(help="Seeds, counted from the file's; gains are means over them.", min=1)] = 1,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Try which part of the network should be personal.

    From one shared model, short runs make the input layer, the output layer,
    the norms, adapters or the full model personal. They are judged on
    validation data: by what they gain over a shared model of as many rounds,
    for each personal parameter and for each byte sent.
    """
    from plures.cli.progress import make_watcher
    from plures.recipes import load_experiment, run_experiment
    from plures.recipes.advising import advise as find_advice

    loaded = load_experiment(experiment, changes or [])
    folder = out or default_folder("advise")
    with told_where(folder):
        found = find_advice(
            loaded,
            run_experiment,
            out=folder,
            rounds=rounds,
            pretrain=pretrain,
            seeds=seeds,
            watcher=make_watcher(Console(stderr=True)),
        )
    if as_json:
        typer.echo(as_json_text([advice.as_json() for advice in found], indent=2))
        return
    show(found, metric_of(folder), folder)


def metric_of(folder: Path) -> str:
    from plures.recipes.advising import REFERENCE

    place = next(iter(sorted((folder / REFERENCE).glob("seed-*"))))
    return str(records.read_result(place)["metric"])


def show(found: Sequence[Advice], metric: str, folder: Path) -> None:
    console = Console()
    console.print(advice_table(found, metric))
    console.print(f"\n{textwrap.fill(legend(metric), 80)}", highlight=False, soft_wrap=True)
    skipped = [advice for advice in found if advice.skipped is not None]
    for advice in skipped:
        console.print(f"Not tried: {advice.part}. {advice.skipped}", highlight=False, markup=False, style="dim")
    for title, best in bests(found):
        console.print(f"\n{title}: {best.part}. In a file:", highlight=False)
        console.print(best.lines, highlight=False, markup=False)
    console.print(f"\nResults: {folder}", highlight=False, soft_wrap=True)


def legend(metric: str) -> str:
    points = ", in percentage points" if in_percent(metric) else ""
    return (
        f"validation: {metric} of clients' models on validation data. gain: over the shared model after as many "
        f"rounds{points}; per 1,000 personal parameters; per MB sent. hurt: clients worse off than with the shared "
        "model. All began with the same shared model."
    )


def advice_table(found: Sequence[Advice], metric: str) -> Table:
    """Parts by their gain for a parameter."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("part", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for advice in found:
        if advice.value is not None:
            table.add_row(advice.part, *cells(advice, metric))
    return table


def cells(advice: Advice, metric: str) -> list[str]:
    def gained(value: float | None) -> str:
        return "-" if value is None else signed(points(value, metric).removesuffix(" points"))

    return [
        f"{advice.personal_parameters:,}",
        percent(advice.share),
        "-" if advice.value is None else score(advice.value, metric),
        gained(advice.gain),
        gained(advice.per_thousand_parameters),
        gained(advice.per_megabyte),
        f"{advice.hurt:g}",
    ]


def bests(found: Sequence[Advice]) -> list[tuple[str, Advice]]:
    """The parts to take, by what matters most; one that is best in several ways is told once."""
    tried = [advice for advice in found if advice.gain is not None and advice.gain > 0]
    ways: dict[str, Callable[[Advice], float]] = {
        "Largest gain": lambda advice: advice.gain or 0.0,
        "Most for a personal parameter": lambda advice: advice.per_thousand_parameters or 0.0,
        "Most for a byte": lambda advice: advice.per_megabyte or 0.0,
    }
    chosen: dict[str, tuple[str, Advice]] = {}
    for title, worth in ways.items():
        if tried:
            best = max(tried, key=worth)
            before = chosen.get(best.part)
            chosen[best.part] = (title if before is None else f"{before[0]}; {title.lower()}", best)
    return list(chosen.values())
