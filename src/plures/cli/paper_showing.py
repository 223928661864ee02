"""What `plures paper` shows: the list of items, the plan of a run, and the verdicts after it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from plures.cli.paper_running import check_directions, planned, run_missing, tell_missing
from plures.core.errors import InvalidConfig, did_you_mean
from plures.papers import PAPERS, find_paper
from plures.papers.claims import judged
from plures.papers.page import write_page
from plures.papers.planning import Job, chosen_recipes, has, missing_jobs
from plures.papers.recipe import SCALES, Paper, Recipe, Scale
from plures.papers.results import write_results
from plures.papers.states import WAITING, item_states
from plures.papers.store import Store
from plures.report.json_text import as_json_text
from plures.report.tables import readable_seconds

__all__ = [
    "Store",
    "available_cores",
    "check_directions",
    "check_only",
    "chosen",
    "finish",
    "missing_jobs",
    "run_missing",
    "show_list",
    "show_plan",
    "write_results",
]


def available_cores() -> int:
    """Of this process; a container may have fewer than the machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def chosen(names: Sequence[str]) -> list[tuple[Paper, list[Recipe]]]:
    """Each paper once, with the items that were named in the paper's order."""
    wanted: dict[str, set[str]] = {}
    for name in names:
        for paper_name in PAPERS if name == "all" else [name.partition("/")[0]]:
            wanted.setdefault(paper_name, set()).update(items_of(paper_name, name))
    return [(found := find_paper(name), chosen_recipes(found, items)) for name, items in wanted.items()]


def items_of(paper_name: str, name: str) -> list[str]:
    """No item is all of them."""
    if name in ("list", "check"):
        raise InvalidConfig(f"'{name}' stands alone: plures paper {name}.")
    if paper_name not in PAPERS:
        raise InvalidConfig(
            f"There is no paper '{paper_name}'. {did_you_mean(paper_name, [*PAPERS, 'list', 'check', 'all'])}"
        )
    items = [recipe.name for recipe in find_paper(paper_name).recipes]
    item = name.partition("/")[2]
    if item and item not in items:
        raise InvalidConfig(f"{paper_name} has no item '{item}'. {did_you_mean(item, items)}")
    return [item] if item else items


def check_only(found: list[tuple[Paper, list[Recipe]]], scale: Scale, only: str) -> None:
    """Refuse a text that no cell has: nothing would run, and nobody would know why."""
    cells = [cell for _, recipes in found for recipe in recipes for cell in recipe.cells(scale)]
    if only and not any(has(cell, only) for cell in cells):
        names = list(dict.fromkeys(name for cell in cells for name in (cell.row, cell.column, cell.source) if name))
        raise InvalidConfig(
            f"At the scale {scale} no row, column or data set has '{only}'. {did_you_mean(only, names)}"
        )


def show_plan(known: Paper, missing_runs: tuple[list[Job], int], store: Store, *, as_json: bool) -> None:
    """What would run, the longest first."""
    jobs, there, missing = planned(missing_runs, store, Console(stderr=True))
    if as_json:
        told = [plain_job(job) for job in jobs]
        typer.echo(as_json_text({"paper": known.name, "there": there, "missing_data": missing, "runs": told}, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", overflow="fold")
    for heading in ("seed", "on a core"):
        table.add_column(heading, justify="right")
    for job in sorted(jobs, key=lambda one: -one.seconds):
        table.add_row(job.title, str(job.seed), readable_seconds(job.seconds))
    console = Console()
    if jobs:
        console.print(table, highlight=False)
    console.print(f"\n{len(jobs)} runs to do, {there} are there.", highlight=False)
    tell_missing(missing, console)


def plain_job(job: Job) -> dict[str, Any]:
    place = {"row": job.cell.row, "column": job.cell.column, "data": job.cell.source, "seed": job.seed}
    return {"item": job.recipe, **place, "key": job.key, "seconds": round(job.seconds)}


def finish(known: Paper, store: Store, *, as_json: bool) -> None:
    """The page, and the verdicts in short."""
    page = write_page(known, store)
    verdicts = judged(known, store)
    if as_json:
        told: list[dict[str, Any]] = [
            {
                "claim": one.claim.name,
                "text": one.claim.text,
                "verdict": None if one.verdict is None else one.verdict.verdict,
                "scale": one.scale,
                "seeds": one.seeds,
                "figure": None if one.verdict is None else one.verdict.figure,
            }
            for one in verdicts
        ]
        typer.echo(as_json_text({"paper": known.name, "page": str(page), "claims": told}, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("claim", "verdict", "at", ""):
        table.add_column(heading, overflow="fold")
    for one in verdicts:
        verdict = "not run" if one.verdict is None else one.verdict.verdict
        table.add_row(one.claim.name, verdict, one.place, one.claim.text)
    console = Console()
    console.print(table, highlight=False)
    console.print(f"\nMeasured beside published: {page}", highlight=False, soft_wrap=True)


def show_list(out: Path, *, as_json: bool) -> None:
    told = [line for name in PAPERS for line in item_states(find_paper(name), Store(folder=out / name))]
    if as_json:
        typer.echo(as_json_text(told, indent=2))
        return
    causes = numbered_causes(told)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("item", no_wrap=True)
    for scale in SCALES:
        table.add_column(scale, no_wrap=True)
    table.add_column("what it shows", overflow="fold")
    for line in told:
        cells = [f"{line[scale]}{marked(causes, line['why'].get(scale))}" for scale in SCALES]
        table.add_row(line["item"], *cells, line["title"])
    console = Console()
    console.print(table, highlight=False, markup=False)
    for why, number in causes.items():
        console.print(f"\n[{number}] {why.rstrip('.')}.", highlight=False, markup=False)
    console.print(f"\nAs kept in {out}. N of M: so many cells have run. Run one: plures paper ITEM", highlight=False)


def numbered_causes(told: list[dict[str, Any]]) -> dict[str, int]:
    """Why scales were not run, each cause once; that it is somebody's turn is none."""
    causes = dict.fromkeys(why for line in told for why in line["why"].values() if why != WAITING)
    return {why: number for number, why in enumerate(causes, start=1)}


def marked(causes: dict[str, int], why: str | None) -> str:
    return f" [{causes[why]}]" if why in causes else ""
