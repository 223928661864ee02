"""The command that runs every method on handwritten digits."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from plures.cli.options import AsJson, Out
from plures.cli.run import default_folder, told_where
from plures.report import records
from plures.report.tables import comparison_table

ROUNDS = 20


def demo(
    out: Out = None,
    rounds: Annotated[int, typer.Option(help="Rounds of each method.", min=1)] = ROUNDS,
    seed: Annotated[int, typer.Option(help="Seed of weights, cohorts and batches.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare all methods on real handwritten digits, 20 clients with 2 classes each."""
    from plures.cli.progress import make_watcher
    from plures.recipes import run_experiment
    from plures.recipes.demo import run_demo

    folder, console = out or default_folder("demo"), Console()
    if not as_json:
        console.print("20 clients, each with 2 of the 10 digits. What should be shared, what personal?\n")
    with told_where(folder):
        watcher = make_watcher(Console(stderr=True))
        rows = run_demo(folder, run_experiment, rounds=rounds, seed=seed, watcher=watcher)
    if as_json:
        typer.echo((folder / "comparison.json").read_text(encoding="utf-8").rstrip())
        return
    console.print()
    console.print(comparison_table(rows))
    console.print(f"\n{textwrap.fill(legend(folder), 80)}\n", highlight=False, soft_wrap=True)
    console.print(f"Results: {folder}", highlight=False, soft_wrap=True)
    console.print(
        f"Try next: plures methods\n          plures run {folder}/pflego/experiment.toml \\\n"
        "              --set method_options.tau=10",
        highlight=False,
        soft_wrap=True,
    )


def legend(folder: Path) -> str:
    """What the columns of the demo's table are; which model was scored is in the records."""
    from plures.methods import METHODS
    from plures.recipes.demo import shown

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
