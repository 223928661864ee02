"""What becomes of the claims of a paper, at the largest scale that decides."""

from __future__ import annotations

from dataclasses import dataclass

from plures.papers.blocks import NOT_RUN, Verdict
from plures.papers.recipe import SCALES, Claim, Paper, Scale
from plures.papers.store import Shelf, Store


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim, the verdict, and what it was found from."""

    claim: Claim
    verdict: Verdict | None = None
    scale: Scale | None = None
    seeds: tuple[int, int] | None = None
    """Of its runs, the fewest and the most; None where nothing is trained."""

    @property
    def place(self) -> str:
        """Such as "small, 1 to 3 seeds"."""
        if self.seeds is None:
            return self.scale or ""
        few, many = self.seeds
        count = f"{few}" if few == many else f"{few} to {many}"
        return f"{self.scale}, {count} seed{'s'[: many > 1]}"


def judged(paper: Paper, store: Store) -> list[Judged]:
    return [judge(paper, claim, store) for claim in paper.claims]


def judge(paper: Paper, claim: Claim, store: Store) -> Judged:
    """At the largest scale at which all its cases have run; where there is none, at the largest with any."""
    found = [(scale, claim.judge(Shelf(store=store, scale=scale))) for scale in reversed(SCALES)]
    known = [(scale, verdict) for scale, verdict in found if verdict is not None]
    if not known:
        return Judged(claim=claim)
    scale, verdict = next(((scale, one) for scale, one in known if is_whole(one)), known[0])
    return Judged(
        claim=claim, verdict=verdict, scale=scale, seeds=seeds_of(paper, claim, Shelf(store=store, scale=scale))
    )


def is_whole(verdict: Verdict) -> bool:
    return NOT_RUN not in verdict.parts.values()


def seeds_of(paper: Paper, claim: Claim, shelf: Shelf) -> tuple[int, int] | None:
    """Of the runs that are there."""
    cells = [cell for name in claim.recipes for cell in paper.recipe(name).cells(shelf.scale)]
    counts = [len(found) for found in map(shelf.outcomes, cells) if found]
    return (min(counts), max(counts)) if counts else None
