"""Shows tables in the format that is asked for, or writes them to a file."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from plures.core.errors import InvalidConfig
from plures.report.json_text import as_json_text
from plures.report.sheets import Sheet, terminal_table
from plures.report.writers import csv_text, latex, markdown
from plures.report.writing import write_whole

WIDTH = 80
Form = Literal["table", "markdown", "csv", "latex", "json"]
AsForm = Annotated[
    Form | None,
    typer.Option("--format", help="By default a table, or by the ending of --out: .md .csv .tex .json .txt"),
]
IntoFile = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it to this file instead.")]
BY_ENDING: dict[str, Form] = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json", ".txt": "table"}


@dataclass(frozen=True, kw_only=True)
class Told:
    """A table and what is said below it: paragraphs, and lines with a margin, which are shown as they are."""

    sheet: Sheet
    below: Sequence[str]
    hang: str = ""
    """Before the further lines of a paragraph."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """Tables for readers; for programs one table in full, and everything as plain data."""

    tables: Sequence[Told]
    full: Sheet
    data: Any


def form_of(form: Form | None, *, as_json: bool, out: Path | None) -> Form:
    """What is asked for in one of three ways, which must not contradict each other."""
    if as_json and form not in (None, "json"):
        raise InvalidConfig(f"--json and --format {form} are two formats. Give one of them.")
    named: Form | None = "json" if as_json else form
    if out is None:
        return named or "table"
    ending = BY_ENDING.get(out.suffix.lower())
    if named is None and ending is None:
        raise InvalidConfig(
            f"Cannot write {out}: its ending tells no format. There are {', '.join(BY_ENDING)} (a table as text); or "
            "give --format."
        )
    if named is not None and ending not in (None, "table", named):  # any format may stand in a .txt
        raise InvalidConfig(f"Cannot write {out}: its ending is that of {ending}, but {named} is asked for.")
    return named or ending or "table"


def can_be_bold(form: Form, out: Path | None) -> bool:
    """Tables in files and pipes are plain text."""
    return form != "table" or (out is None and has_styles(Console()))


def has_styles(console: Console) -> bool:
    return console.color_system is not None


def show(page: Page, form: Form, out: Path | None = None) -> None:
    """On the terminal, or into a file."""
    if out is not None:
        write_whole(out, text_of(page, form))
        typer.echo(f"Written: {out}", err=True)
    elif form == "table":
        print_tables(page, Console())
    else:
        typer.echo(text_of(page, form), nl=False)


def text_of(page: Page, form: Form) -> str:
    if form == "json":
        return as_json_text(page.data, indent=2) + "\n"
    if form == "csv":
        return csv_text(page.full)
    if form == "table":
        text = io.StringIO()
        print_tables(page, Console(file=text, width=WIDTH, color_system=None))
        return text.getvalue()
    write = {"markdown": told_in_markdown, "latex": told_in_latex}[form]
    return "\n".join(map(write, page.tables))


def print_tables(page: Page, console: Console) -> None:
    for number, told in enumerate(page.tables):
        if number:
            console.print()
        console.print(terminal_table(told.sheet, stars=not has_styles(console)))
        text = "\n".join(line for paragraph in told.below for line in wrapped(paragraph, WIDTH, told.hang))
        console.print(f"\n{text}", highlight=False, markup=False, soft_wrap=True)


def wrapped(paragraph: str, width: int, hang: str = "") -> list[str]:
    """An empty paragraph is an empty line."""
    kept = paragraph.startswith(" ") or not paragraph
    return [paragraph] if kept else textwrap.wrap(paragraph, width, subsequent_indent=hang)


def told_in_markdown(told: Told) -> str:
    paragraphs = [f"    {line.strip()}" if line.startswith(" ") else line for line in told.below]
    return "\n".join([markdown(told.sheet), *(f"{paragraph}\n" for paragraph in paragraphs)])


def told_in_latex(told: Told) -> str:
    """What is said stands above, as comments."""
    said = [r"Needs \usepackage{booktabs}.", *told.below]
    lines = [line for paragraph in said for line in wrapped(paragraph, WIDTH - 2)]
    return "".join(f"% {line}\n" for line in lines) + latex(told.sheet)
