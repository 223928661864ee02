"""What becomes of the claims of a paper, at the largest scale that decides."""

from __future__ import annotations

from dataclasses import dataclass

from plures.papers.blocks import Verdict
from plures.papers.recipe import SCALES, Claim, Paper, Scale
from plures.papers.store import Shelf, Store


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim, the verdict, and the scale that it was found at."""

    claim: Claim
    verdict: Verdict | None = None
    scale: Scale | None = None


def judged(paper: Paper, store: Store) -> list[Judged]:
    """Every claim: full, then small, then micro; the first scale at which enough has run counts."""
    return [judge(claim, store) for claim in paper.claims]


def judge(claim: Claim, store: Store) -> Judged:
    for scale in reversed(SCALES):
        verdict = claim.judge(Shelf(store=store, scale=scale))
        if verdict is not None:
            return Judged(claim=claim, verdict=verdict, scale=scale)
    return Judged(claim=claim)
