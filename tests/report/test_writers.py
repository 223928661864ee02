"""One table as Markdown, CSV and LaTeX: what programs read back is what was written."""

from __future__ import annotations

import csv
import io
import re

import pytest
from rich.console import Console

from plures.report.sheets import Cell, Column, Sheet, terminal_table
from plures.report.writers import csv_text, in_latex, in_markdown, latex, markdown

COLUMNS = (
    Column(heading="label", names=("label",), words=True, least=8),
    Column(names=("method", "best")),
    Column(heading="rmse", names=("mean", "std")),
    Column(heading="low 10%", names=("bottom_decile",)),
)
AWKWARD = 'a|b & 50% of $x_1 {#1} ~^\\ "quoted", <new>\nline'


def row(label: str, mean: float | None, std: float | None = None, *, best: bool = False) -> tuple[Cell, ...]:
    shown = "-" if mean is None else f"{mean:.1f}" + ("" if std is None else f"\n±{std:.1f}")
    return (
        Cell(text=label, values=(label,)),
        Cell(values=("fedavg", best)),
        Cell(text=shown, values=(mean, std), bold=best),
        Cell(text="-2.5", values=(-2.5,)),
    )


SHEET = Sheet(
    columns=COLUMNS,
    rows=(row("per_fedavg", 1 / 3, 0.1, best=True), row(AWKWARD, float("inf")), row("[old] *", None), row("=1+1", 2.0)),
)


def pipes(text: str) -> list[list[str]]:
    """The cells of each line of a Markdown table, as a reader of Markdown takes them."""
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines()]
    return [[cell.strip() for cell in line] for line in lines]


def test_markdown_has_pipes_that_line_up_and_the_best_in_bold():
    text = markdown(SHEET)
    lines = text.splitlines()

    assert len({len(line) for line in lines}) == 1
    assert {len(line) for line in pipes(text)} == {3}
    assert pipes(text)[0] == ["label", "rmse", "low 10%"]
    assert re.fullmatch(r"\| :-+ \| -+: \| -+: \|", lines[1])
    assert pipes(text)[2] == ["per_fedavg", "**0.3 ± 0.1**", "-2.5"]
    assert pipes(text)[4][1] == "-"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("per_fedavg", "per_fedavg"),
        ("_old_", r"\_old\_"),
        ("a|b", r"a\|b"),
        ("**x**", r"\*\*x\*\*"),
        ("<b>`c`", r"\<b\>\`c\`"),
        ("two\nlines", "two lines"),
        ("\\", "\\\\"),
    ],
)
def test_markdown_escapes_what_would_be_markup(text, written):
    assert in_markdown(text) == written


def test_csv_has_every_value_in_full_and_reads_back():
    found = list(csv.DictReader(io.StringIO(csv_text(SHEET), newline="")))

    assert list(found[0]) == ["label", "method", "best", "mean", "std", "bottom_decile"]
    assert [line["label"] for line in found] == ["per_fedavg", AWKWARD, "[old] *", "=1+1"]
    assert (float(found[0]["mean"]), found[0]["best"]) == (1 / 3, "true")
    assert [found[1]["mean"], found[2]["mean"], found[3]["mean"]] == ["inf", "", "2"]


def test_csv_is_as_rfc_4180_has_it():
    lines = csv_text(SHEET).split("\r\n")

    assert lines[-1] == ""
    assert lines[1] == "per_fedavg,fedavg,true,0.3333333333333333,0.1,-2.5"
    assert lines[2].startswith('"a|b & 50% of $x_1 {#1} ~^\\ ""quoted"", <new>\nline",fedavg,false,inf,,')


def test_a_cell_with_too_few_values_is_an_error_and_no_shifted_row():
    cells = (*row("a", 1.0)[:-1], Cell(text="-2.5"))
    with pytest.raises(ValueError, match="shorter"):
        csv_text(Sheet(columns=COLUMNS, rows=(cells,)))


def tokens(text: str) -> list[str]:
    r"""Of LaTeX: commands, escaped signs, and single letters."""
    return re.findall(r"\\[A-Za-z]+|\\.|[^\\]", text, re.DOTALL)


def depth_of(text: str) -> int:
    """Braces must close what they open, and dollars come in pairs."""
    depth = 0
    for token in tokens(text):
        depth += {"{": 1, "}": -1}.get(token, 0)
        assert depth >= 0
    assert tokens(text).count("$") % 2 == 0
    return depth


def test_latex_is_a_tabular_of_booktabs():
    text = latex(SHEET)
    lines = text.splitlines()

    assert lines[:4] == [r"\begin{tabular}{lrr}", r"\toprule", r"label & rmse & low 10\% \\", r"\midrule"]
    assert lines[4] == r"per\_fedavg & \textbf{0.3 $\pm$ 0.1} & $-$2.5 \\"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert depth_of(text) == 0


def test_every_row_of_latex_has_its_columns_and_no_sign_left_that_tex_would_take():
    rows = [line for line in latex(SHEET).splitlines() if line.endswith(r"\\")]

    assert len(rows) == 1 + len(SHEET.rows)
    for line in rows:
        found = tokens(line.removesuffix(r"\\"))
        assert found.count("&") == 2
        assert not {"%", "#", "~", "^", "_"} & set(found)
        assert depth_of(line) == 0


def test_a_label_in_brackets_is_no_option_of_the_line_before():
    line = next(line for line in latex(SHEET).splitlines() if "old" in line)

    assert line == r"{}[old] * & -- & $-$2.5 \\"


@pytest.mark.parametrize("letter", "\\&%$#_{}~^<>|")
def test_no_sign_of_latex_is_passed_on(letter):
    assert in_latex(letter) != letter
    assert depth_of(in_latex(letter)) == 0


def test_the_terminal_folds_text_and_keeps_numbers():
    file = io.StringIO()
    Console(file=file, width=40, color_system=None).print(terminal_table(SHEET))

    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= 40
    assert "…" not in text
    assert "±0.1" in text
    assert "method" not in text
