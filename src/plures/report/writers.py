"""A table as text for other programs: Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence

from rich.cells import cell_len

from plures.report.sheets import Cell, Column, Sheet, Value

IN_MARKDOWN = re.compile(r"[\\`*|<>~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""What would be taken for markup; an underscore inside a word is none."""
IN_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"${sign}$" for sign in "<>|"},
}
MINUS = re.compile(r"(?<![A-Za-z0-9])-(?=[0-9]|inf)")


def markdown(sheet: Sheet) -> str:
    """A table of pipes that line up; the best in bold."""
    cells = [[in_markdown(column.heading) for column in sheet.shown]]
    cells += [[in_markdown(cell.text, bold=cell.bold) for cell in row] for row in sheet.shown_rows()]
    widths = [max(3, *map(cell_len, column)) for column in zip(*cells, strict=True)]
    rule = [
        ":" + "-" * (width - 1) if column.words else "-" * (width - 1) + ":"
        for column, width in zip(sheet.shown, widths, strict=True)
    ]
    first, *others = [padded(row, sheet.shown, widths) for row in cells]
    return "".join(f"| {' | '.join(row)} |\n" for row in (first, rule, *others))


def in_markdown(text: str, *, bold: bool = False) -> str:
    escaped = IN_MARKDOWN.sub(r"\\\g<0>", one_line(text))
    return f"**{escaped}**" if bold and escaped else escaped


def padded(texts: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    spaces = [" " * (width - cell_len(text)) for text, width in zip(texts, widths, strict=True)]
    return [
        text + space if column.words else space + text
        for text, space, column in zip(texts, spaces, columns, strict=True)
    ]


def one_line(text: str) -> str:
    """Only a terminal is short of room."""
    return " ".join(text.replace("±", " ± ").split())


def csv_text(sheet: Sheet) -> str:
    """Every value in full, one to a column, as RFC 4180 has it; what there is not is empty."""
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow([name for column in sheet.columns for name in column.names])
    for row in sheet.rows:
        pairs = [
            pair
            for column, cell in zip(sheet.columns, row, strict=True)
            for pair in zip(column.names, cell.values, strict=True)
        ]
        table.writerow([plain(value) for _, value in pairs])
    return text.getvalue()


def plain(value: Value) -> str:
    """Numbers with every digit; inf as pandas and others read it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(float(value)).removesuffix(".0") if isinstance(value, float) else str(value)


def latex(sheet: Sheet) -> str:
    """A tabular with the rules of booktabs."""
    sides = "".join("l" if column.words else "r" for column in sheet.shown)
    heading = row_in_latex([in_latex(column.heading) for column in sheet.shown])
    body = [
        row_in_latex([cell_in_latex(cell, column) for cell, column in zip(row, sheet.shown, strict=True)])
        for row in sheet.shown_rows()
    ]
    begin, end = rf"\begin{{tabular}}{{{sides}}}", r"\end{tabular}"
    return "\n".join([begin, r"\toprule", heading, r"\midrule", *body, r"\bottomrule", end]) + "\n"


def row_in_latex(cells: Sequence[str]) -> str:
    r"""After \\ and a rule a bracket or a star would be an option of theirs."""
    line = " & ".join(cells)
    return ("{}" if line.startswith(("[", "*")) else "") + line + r" \\"


def cell_in_latex(cell: Cell, column: Column) -> str:
    text = in_latex(cell.text)
    if not column.words:
        text = "--" if text == "-" else MINUS.sub("$-$", text)
    return rf"\textbf{{{text}}}" if cell.bold and text else text


def in_latex(text: str) -> str:
    return "".join(IN_LATEX.get(letter, letter) for letter in one_line(text))
