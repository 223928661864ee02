"""The command that looks at the files of a run, and repairs them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plures.cli.options import AsJson, RunArgument
from plures.core.errors import InvalidConfig
from plures.report.json_text import as_json_text
from plures.report.run_tables import shown_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plures.recipes.doctor_findings import Diagnosis, Done, Finding

WRONG = 1
"""The exit code where something is damaged."""
COLOURS = {"fine": "green", "left over": "yellow", "cut": "yellow"}
"""Every other state is red."""


def doctor(
    run: RunArgument,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be; originals are kept.")] = False,
    forget_clients: Annotated[
        bool, typer.Option("--forget-clients", help="With --repair: clients whose state is lost begin anew.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look at every file of a run or a study, and repair what can be repaired.

    fine; damaged; cut: its end is not whole; left over: of a process that was
    killed; missing. Nothing is changed without --repair. What is replaced is
    kept beside as NAME.damaged, and doctor.json tells what was done.

    A client's lost state is never replaced by an older one: the run goes back
    to a checkpoint at which all can be read. Where there is none, the client
    begins anew, but only with --forget-clients.

    The exit code is 0 if all is well, or was repaired, else 1.

    Example: plures doctor runs/long --repair
    """
    from plures.recipes import doctor as at_work

    if forget_clients and not repair:
        raise InvalidConfig("--forget-clients is for --repair: give both.")
    done = at_work.repair(run, forget_clients=forget_clients) if repair else []
    found = at_work.examine(run)
    if as_json:
        typer.echo(as_json_text(told(found, done), indent=2))
    else:
        show(run, found, done, repaired=repair)
    if not all(one.is_well for one in found):
        raise typer.Exit(WRONG)


def told(found: Sequence[Diagnosis], done: Sequence[tuple[Path, Done]]) -> dict[str, object]:
    from plures.recipes.doctor_findings import done_json

    repaired = [{"folder": str(folder), **done_json(one)} for folder, one in done]
    return {"well": all(one.is_well for one in found), "repaired": repaired, "runs": [one.as_json() for one in found]}


def show(base: Path, found: Sequence[Diagnosis], done: Sequence[tuple[Path, Done]], *, repaired: bool) -> None:
    """Of one run every file; of several, what is not fine."""
    console = Console()
    for folder, one in done:
        where = "" if len(found) == 1 else f"{shown_folder(folder, base)}: "
        console.print(
            wrapped(f"Repaired {where}{one.file}: {one.what}."), highlight=False, markup=False, soft_wrap=True
        )
    for number, diagnosis in enumerate(found):
        rows = [one for one in diagnosis.findings if len(found) == 1 or one.state != "fine"]
        if number or done:
            console.print()
        if len(found) > 1:
            name = shown_folder(diagnosis.folder, base)
            console.print(name, style="bold", highlight=False, markup=False, soft_wrap=True)
        if rows:
            console.print(findings_table(rows))
            console.print()
        console.print(wrapped(diagnosis.verdict), highlight=False, markup=False, soft_wrap=True)
    if not repaired and any(one.repair for diagnosis in found for one in diagnosis.findings):
        console.print("\nNothing was changed; --repair does what the last column says.", highlight=False)


def findings_table(findings: Sequence[Finding]) -> Table:
    has_remedies = any(finding.remedy for finding in findings)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("file", overflow="fold", max_width=24)
    table.add_column("state", no_wrap=True)
    table.add_column("what it means", overflow="fold", ratio=3)
    if has_remedies:
        table.add_column("--repair would", overflow="fold", ratio=2)
    for finding in findings:
        state = Text(finding.state, style=COLOURS.get(finding.state, "red"))
        cells = [Text(finding.file), state, Text(finding.meaning)]
        table.add_row(*cells, *([Text(finding.remedy)] if has_remedies else []))
    return table


def wrapped(text: str) -> str:
    """In lines of 80 columns; a command to copy is not broken."""
    return textwrap.fill(text, 80, break_long_words=False, break_on_hyphens=False)
