"""One page over all papers: every claim with its verdict, the figure that decides, and where to read more."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from plures.papers import PAPERS, find_paper
from plures.papers.blocks import NOT_RUN
from plures.papers.claims import Judged, judged
from plures.papers.page import shortened
from plures.papers.store import Store
from plures.report.writing import write_whole

HEAD = """# What the papers claim, and what holds here

Written by `plures paper all --pages --results docs/results.md` from the outcomes in `reproductions/`. **holds** and
**fails** are by the 95 % interval of the paired difference over seeds and clients where two runs can be paired, else by
the numbers that stand there; **undecided** is an interval with both signs, or a claim of which only some cases have
run. An interval of one seed is over clients alone and says nothing of chance between runs; `micro` is a small setting
besides, and a verdict there is a hint. [How this works](reproducing.md).
"""


def write_results(path: Path, out: Path) -> dict[str, int]:
    """The page, and how many claims there are of each verdict."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines, counts = [HEAD], Counter[str]()
    for name in PAPERS:
        paper = find_paper(name)
        verdicts = judged(paper, Store(folder=out / name))
        counts.update(NOT_RUN if one.verdict is None else one.verdict.verdict for one in verdicts)
        page = Path(os.path.relpath(out / name / "README.md", path.parent)).as_posix()
        lines += [f"## {paper.title}", "", f"[All tables and figures]({page}). {paper.citation}", ""]
        lines += ["| | claim | verdict | at | figure | in |", "|---|---|---|---|---|---|"]
        lines += [*(row(one, page) for one in verdicts), ""]
    write_whole(path, "\n".join(lines).rstrip() + "\n")
    return dict(counts)


def row(one: Judged, page: str) -> str:
    verdict = NOT_RUN if one.verdict is None else f"**{one.verdict.verdict}**"
    figure = "" if one.verdict is None else shortened(one.verdict)
    where = f"[{one.claim.item}]({page}#{one.claim.item})"
    return f"| {one.claim.name} | {one.claim.text} | {verdict} | {one.place} | {figure} | {where} |"
