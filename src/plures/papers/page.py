"""The page of a paper: claims first, then every item, measured beside published."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from plures.papers.blocks import NOT_RUN, Block, Entry, Figure, Grid, Verdict, Words
from plures.papers.claims import Judged, judged
from plures.papers.recipe import SCALES, Paper, Recipe, Scale
from plures.papers.states import State, state_of
from plures.papers.store import Shelf, Store, check_place
from plures.report.writing import write_whole

LEGEND = (
    "In tables, *measured* / published; ± is the standard deviation over seeds (ddof 0), where several have run. "
    f"*{NOT_RUN}*: a cell that is waiting for somebody's machine."
)


SAID = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "undecided": ("is undecided", "are undecided"),
    NOT_RUN: ("was not run", "were not run"),
}
"""Of one case, and of several."""


def write_page(paper: Paper, store: Store) -> Path:
    """README.md and figures in the paper's folder, from what has been run."""
    from plures.papers.drawing import draw

    check_place(store)
    figures: list[tuple[str, Figure]] = []
    lines = [
        f"# {paper.title}",
        "",
        paper.citation,
        "",
        *ways(paper),
        "",
        *claim_lines(paper, store),
        *slip_lines(paper),
        "",
        LEGEND,
    ]
    said: dict[str, str] = {}
    for recipe in paper.recipes:
        lines += ["", f'<a id="{recipe.name}"></a>', "", f"## {recipe.name}: {recipe.title}", ""]
        lines += item_lines(paper, recipe, store, figures)
        lines += differing(recipe, said)
    drawn = [store.folder / "figures" / f"{name}.svg" for name, _ in figures]
    for path, (_, figure) in zip(drawn, figures, strict=True):
        draw(figure, path)
    for path in {*(store.folder / "figures").glob("*.svg")} - {*drawn}:
        path.unlink()  # of an item that has another name now, or none
    path = store.folder / "README.md"
    write_whole(path, "\n".join(lines).rstrip() + "\n")
    return path


def ways(paper: Paper) -> list[str]:
    needs = f" Data sets: {', '.join(paper.data)}." if paper.data else ""
    return [
        f"Recipes: [`plures.papers.{paper.name}`](../../src/plures/papers/{paper.name}). This page and everything "
        f"beside it is written by `plures paper {paper.name}`; `plures paper list` tells what has been run.{needs}"
    ]


def claim_lines(paper: Paper, store: Store) -> list[str]:
    if not paper.claims:
        return []
    lines = ["## Claims", "", "| | claim | verdict | figure | in |", "|---|---|---|---|---|"]
    verdicts = judged(paper, store)
    for found in verdicts:
        figure = "" if found.verdict is None else shortened(found.verdict)
        where = f"[{found.claim.item}](#{found.claim.item})"
        lines.append(f"| {found.claim.name} | {found.claim.text} | {told_verdict(found)} | {figure} | {where} |")
    return [*lines, *(line for found in verdicts for line in case_lines(found))]


def slip_lines(paper: Paper) -> list[str]:
    return ["", "## Slips of the paper", "", *(f"- {slip}" for slip in paper.slips)] if paper.slips else []


def shortened(verdict: Verdict) -> str:
    """Of a claim about several cases how many hold, and by how much they differ; else the numbers themselves."""
    told = verdict.figure
    if len(verdict.parts) > 1:
        counts = Counter(verdict.parts.values()).most_common()
        told = f"of {len(verdict.parts)} cases " + ", ".join(
            f"{number} {SAID[word][number > 1]}" for word, number in counts
        )
        told += "" if verdict.span is None else "; differences {:+.2f} to {:+.2f} points".format(*verdict.span)
    return ". ".join(part for part in (told, verdict.why) if part).replace("|", "\\|").replace("\n", " ")


def case_lines(found: Judged) -> list[str]:
    """The cases of a claim that has several, one by one."""
    if found.verdict is None or len(found.verdict.parts) < 2:
        return []
    cases = [f"- {case}" for case in found.verdict.figure.split("; ")]
    return ["", f"{found.claim.name}, case by case:", "", *cases]


def told_verdict(found: Judged) -> str:
    if found.verdict is None:
        return NOT_RUN
    return f"**{found.verdict.verdict}** ({found.place})"


def item_lines(paper: Paper, recipe: Recipe, store: Store, figures: list[tuple[str, Figure]]) -> list[str]:
    """An item at every scale at which something has been run: the largest, and the others folded below it."""
    if recipe.closed_form:
        return block_lines(recipe.show(Shelf(store=store, scale="full")), recipe.name, "", figures)
    lines: list[str] = []
    shown = False
    for scale in reversed(SCALES):
        state = state_of(recipe, scale, store)
        if not state.done:
            why = recipe.without.get(scale) or recipe.settings.get(scale, "")
            lines += [f"**{scale}**: {NOT_RUN}. {why}".rstrip(), ""]
            continue
        settings = f"{recipe.settings.get(scale, '')} {recipe.without.get(scale, '')}".strip()
        blocks = recipe.show(Shelf(store=store, scale=scale))
        found = [settings, "", told_runs(state, command(paper, recipe, scale, state)), ""]
        found += block_lines(blocks, recipe.name, scale, figures)
        lines += folded(f"{recipe.name}, {scale}", found) if shown else [f"### {recipe.name}, {scale}", "", *found]
        shown = True
    return lines


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Behind a title that opens when it is clicked."""
    return ['<details markdown="1">', f"<summary>{title}</summary>", "", *lines, "</details>", ""]


def differing(recipe: Recipe, said: dict[str, str]) -> list[str]:
    """Why numbers differ; what was said of an item before is not said again."""
    if not recipe.differs:
        return []
    if recipe.differs in said:
        return [f"**Why they differ**: as under {said[recipe.differs]}."]
    said[recipe.differs] = recipe.name
    return [f"**Why they differ.** {recipe.differs}"]


def command(paper: Paper, recipe: Recipe, scale: Scale, state: State) -> str:
    """Runs what there is of an item, and what is missing of it."""
    seeds = f" --seeds {state.most_seeds}" if state.most_seeds > 1 else ""
    return f"plures paper {paper.name}/{recipe.name} --scale {scale}{seeds}"


def told_runs(state: State, command: str) -> str:
    """How, when, with which source and on what machine."""
    made = state.made
    dates = sorted({date for date, _, _ in made})
    commits = list(dict.fromkeys(commit for _, commit, _ in made))
    machines = sorted({machine for _, _, machine in made})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    where = f"commit {', '.join(commits)}, on {'; '.join(machines)}"
    return f"{len(made)} run{'s'[: len(made) > 1]} of `{command}`, {when}, {where}."


def block_lines(blocks: Sequence[Block], item: str, scale: str, figures: list[tuple[str, Figure]]) -> list[str]:
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, Grid):
            lines += grid_lines(block)
        elif isinstance(block, Words):
            lines += [block.text, ""]
        elif any(block.panels.values()):
            further = block.name.removeprefix(item).strip("-")
            file = "-".join(part for part in (item, scale, further) if part)
            figures.append((file, block))
            lines += [f"![{block.title}](figures/{file}.svg)", "", *([block.note, ""] if block.note else [])]
    return lines


def grid_lines(grid: Grid) -> list[str]:
    lines = [f"*{grid.title}*", "", "| " + " | ".join([grid.corner, *grid.columns]) + " |"]
    lines.append("|" + "---|" * (len(grid.columns) + 1))
    for name, entries in grid.rows.items():
        lines.append("| " + " | ".join([name, *(entry_text(entry, grid.digits) for entry in entries)]) + " |")
    return [*lines, "", *([grid.note, ""] if grid.note else [])]


def entry_text(entry: Entry | None, digits: int) -> str:
    """Measured / published; one that is not there is left out, but a cell that could run says that it has not."""
    if entry is None:
        return ""
    measured = NOT_RUN if entry.measured is None else number(entry.measured, digits)
    if entry.spread is not None:
        measured += f" ± {entry.spread:.{digits}f}"
    told = f"*{measured}*" if entry.measured is None else measured
    return told if entry.published is None else f"{told} / {number(entry.published, digits)}"


def number(value: float | str, digits: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if math.isnan(value):
        return "nan"
    return f"{value:,.0f}" if abs(value) >= 1000 and value.is_integer() else f"{value:,.{digits}f}"
