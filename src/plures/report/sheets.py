"""A table as plain values: one list of columns and cells, from which every format is written."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

Value = str | bool | int | float | None


@dataclass(frozen=True, kw_only=True)
class Column:
    """What stands in a column, for readers and for programs."""

    heading: str = ""
    """Above what readers see; nothing: the column is for programs alone."""
    names: tuple[str, ...] = ()
    """Of the values behind each cell; none: the column is for readers alone."""
    words: bool = False
    """Whether it holds text, which is set to the left and folded where it is too long."""
    least: int | None = None
    """Characters that remain of folded text."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One place of a table: what is shown, and the values in full, as many as its column has names."""

    text: str = ""
    """May have several lines, where a terminal has no room for one."""
    values: tuple[Value, ...] = ()
    bold: bool = False


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A whole table."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def shown(self) -> list[Column]:
        """The columns that readers see."""
        return [column for column in self.columns if column.heading]

    def shown_rows(self) -> list[list[Cell]]:
        """The cells that readers see."""
        return [[cell for column, cell in zip(self.columns, row, strict=True) if column.heading] for row in self.rows]


def terminal_table(sheet: Sheet, *, stars: bool = False) -> Table:
    """For a terminal of 80 columns: text is folded, numbers are not. With stars before what shall be bold."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in sheet.shown:
        if column.words:
            table.add_column(Text(column.heading), overflow="fold", min_width=column.least)
        else:
            table.add_column(Text(column.heading), justify="right", no_wrap=True)
    for row in sheet.shown_rows():
        table.add_row(*(cell_text(cell, stars=stars) for cell in row))
    return table


def cell_text(cell: Cell, *, stars: bool) -> Text:
    if not cell.bold:
        return Text(cell.text)
    return Text(f"*{cell.text}" if stars else cell.text, style="bold")
