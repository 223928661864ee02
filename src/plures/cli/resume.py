"""The command that goes on with a run or a study that was interrupted or killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from plures.cli.options import AsJson, RunArgument
from plures.core.errors import RunFolderError
from plures.report import records

if TYPE_CHECKING:
    from plures.recipes import Watcher


def resume(run: RunArgument, as_json: AsJson = False) -> None:
    """Go on with a run or a study that was interrupted or killed.

    The run goes on from its last checkpoint, and ends with the same models,
    records and table as one that was left alone, to the bit. What comes after
    the checkpoint is done again. A run that has finished is only shown.

    Of a study, runs that have finished are kept, and the others go on.
    """
    from plures.cli.progress import make_watcher
    from plures.cli.run import told_where

    watcher = make_watcher(Console(stderr=True))
    with told_where(run):
        if (run / records.STUDY).is_file():
            go_on_with_study(run, watcher, as_json=as_json)
        else:
            go_on_with_run(run, watcher, as_json=as_json)
    if not as_json:
        Console().print(f"Results: {run}", highlight=False, soft_wrap=True)


def go_on_with_run(folder: Path, watcher: Watcher, *, as_json: bool) -> None:
    from plures.cli.run import show_result
    from plures.recipes import load_experiment, run_experiment

    if not folder.is_dir():
        raise RunFolderError(f"There is no folder {folder}. Give the folder of a run; `plures runs` lists runs.")
    if not (folder / records.EXPERIMENT).is_file():
        begun = (folder / records.ROUNDS).is_file()
        told = (
            "the run was made from code, which alone knows its data and network. In Python, call plures.run(..., "
            f"out='{folder}', resume=True) as then"
            if begun
            else "it is no run"
        )
        raise RunFolderError(f"{folder} has no {records.EXPERIMENT}: {told}.")
    experiment = load_experiment(folder / records.EXPERIMENT)
    show_result(run_experiment(experiment, out=folder, watcher=watcher, resume=True), as_json=as_json)


def go_on_with_study(folder: Path, watcher: Watcher, *, as_json: bool) -> None:
    from plures.cli.compare import show_comparison
    from plures.recipes import resume_study

    study = resume_study(folder, watcher=watcher)
    show_comparison([study.folder], alone=not study.usual, form="json" if as_json else "table")
