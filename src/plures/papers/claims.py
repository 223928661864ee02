"""What becomes of the claims of a paper, at the largest scale that decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from plures.papers.blocks import NOT_RUN, Verdict
from plures.papers.cells import Cell
from plures.papers.outcomes import Outcome
from plures.papers.recipe import SCALES, Claim, Found, Paper, Scale
from plures.papers.store import Shelf, Store


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim, the verdict, and what it was found from."""

    claim: Claim
    verdict: Verdict | None = None
    scale: Scale | None = None
    seeds: tuple[int, int] | None = None
    """Of the runs that it was found from, the fewest and the most; None where nothing is trained."""

    @property
    def place(self) -> str:
        """Such as "small, 1 to 3 seeds"."""
        if self.seeds is None:
            return self.scale or ""
        few, many = self.seeds
        count = f"{few}" if few == many else f"{few} to {many}"
        return f"{self.scale}, {count} seed{'s'[: many > 1]}"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What has been run, and of how many seeds whatever was asked for."""

    found: Found
    counts: list[int] = field(default_factory=list)

    @property
    def scale(self) -> Scale:
        return self.found.scale

    def outcomes(self, cell: Cell) -> dict[int, Outcome]:
        outcomes = self.found.outcomes(cell)
        if outcomes:
            self.counts.append(len(outcomes))
        return outcomes


def judged(paper: Paper, store: Store) -> list[Judged]:
    return [judge(claim, store) for claim in paper.claims]


def judge(claim: Claim, store: Store) -> Judged:
    """At the largest scale that tells enough; where there is none, at the largest with any case that has run."""
    looked = [Asked(found=Shelf(store=store, scale=scale)) for scale in reversed(SCALES)]
    known = [(asked, verdict) for asked in looked if (verdict := claim.judge(asked)) is not None]
    if not known:
        return Judged(claim=claim)
    verdicts = [verdict for _, verdict in known]
    place = next((place for place, one in enumerate(verdicts) if tells_enough(one, verdicts[place + 1 :])), 0)
    asked, verdict = known[place]
    seeds = (min(asked.counts), max(asked.counts)) if asked.counts else None
    return Judged(claim=claim, verdict=verdict, scale=asked.scale, seeds=seeds)


def tells_enough(verdict: Verdict, smaller: Sequence[Verdict]) -> bool:
    """Whether most of its cases have run, or as many as at any smaller scale, or the others can change nothing."""
    ran = cases_run(verdict)
    return (
        verdict.verdict != "undecided" or 2 * ran > len(verdict.parts) or all(ran >= cases_run(one) for one in smaller)
    )


def cases_run(verdict: Verdict) -> int:
    return sum(part != NOT_RUN for part in verdict.parts.values()) if verdict.parts else 1
