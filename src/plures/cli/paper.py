"""The command that reruns the papers' tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from plures.cli import completing
from plures.cli.options import AsJson

Scale = Literal["micro", "small", "full"]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        help="list, check, all, papers (pflego), or items of them (pflego/table-1).",
        autocompletion=completing.papers,
    ),
]
OutFolder = Annotated[Path, typer.Option(help="Where outcomes, pages and figures are kept.")]
RunsFolder = Annotated[Path, typer.Option(help="Where runs go on; of use until they have ended.")]


def paper(
    names: Names,
    scale: Annotated[Scale, typer.Option(help="How much of it: minutes, hours, or the paper's own setting.")] = "micro",
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Runs of each cell.")] = 1,
    only: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Only cells with this in their row, column or data set.", show_default=False),
    ] = "",
    jobs: Annotated[int, typer.Option(min=0, help="Runs at once; 0: one for each core.")] = 0,
    dry: Annotated[bool, typer.Option("--dry", help="Tell what would run and how long it would take.")] = False,
    pages: Annotated[bool, typer.Option("--pages", help="Run nothing; write the pages from what is there.")] = False,
    results: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write one page over the claims of all papers.")
    ] = None,
    out: OutFolder = Path("reproductions"),
    runs: RunsFolder = Path("runs/papers"),
    as_json: AsJson = False,
) -> None:
    """Rerun the tables and figures of a paper, and put them beside the published ones.

    plures paper list shows every item, what has been run and why the rest has
    not; plures paper check runs the directions that are sure, and fails if one
    of them does not hold. Anything else runs what is missing: a run is kept by
    its configuration and never done twice, and one that was cut goes on. It
    ends with OUT/PAPER/README.md.

    Examples:

    plures paper pflego/table-1 --scale small --seeds 3 --only mnist

    plures paper fedspa/table-3 fedspa/table-4 --dry
    """
    from plures.cli import paper_showing as showing  # not before it runs: they import torch

    if names == ["list"]:
        showing.show_list(out, as_json=as_json)
        return
    at_once = jobs or showing.available_cores()
    if names == ["check"]:
        showing.check_directions(at_once, as_json=as_json)
        return
    found = showing.chosen(names)
    showing.check_only(found, scale, only)
    for known, recipes in found:
        store = showing.Store(folder=out / known.name)
        missing = showing.missing_jobs(recipes, scale, seeds, store, only)
        if dry:
            showing.show_plan(known, missing, store, as_json=as_json)
            continue
        if not pages:
            showing.run_missing(missing, store, runs, at_once)
        showing.finish(known, store, as_json=as_json)
    if results is not None and not dry:
        showing.write_results(results, out)
