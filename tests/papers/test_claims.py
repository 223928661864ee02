"""Which scale decides a claim, and from how many seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plures.papers import PAPERS, find_paper
from plures.papers.blocks import Verdict
from plures.papers.cells import Cell
from plures.papers.claims import judged
from plures.papers.outcomes import Outcome, write_outcome
from plures.papers.reading import all_of
from plures.papers.recipe import SCALES, Found, Scale
from plures.papers.store import Store
from tests.papers.made_up import OTHER, OWN, PAPER, cell, outcome


def paper_of(parts: dict[str, dict[str, str | None]]):
    """A claim whose cases have these verdicts at a scale, found from two cells."""

    def judge(found: Found) -> Verdict | None:
        for one in (OWN, OTHER):
            found.outcomes(one)
        cases = parts.get(found.scale, {})
        return all_of({name: None if one is None else Verdict(verdict=one, figure="") for name, one in cases.items()})

    return replace(PAPER, claims=(replace(PAPER.claims[0], judge=judge),))


@pytest.mark.parametrize(
    ("parts", "scale", "verdict"),
    [
        ({"full": {"a": "holds", "b": None}, "micro": {"a": "fails", "b": "fails"}}, "micro", "fails"),
        ({"full": {"a": "fails", "b": None}, "micro": {"a": "holds", "b": "holds"}}, "full", "fails"),
        (
            {"small": {"a": "holds", "b": "holds", "c": None}, "micro": dict.fromkeys("abc", "fails")},
            "small",
            "undecided",
        ),
        ({"full": {"a": "holds", "b": "holds"}, "micro": {"a": "fails", "b": "fails"}}, "full", "holds"),
        ({"small": {"a": "holds", "b": None}, "micro": {"a": None, "b": "holds"}}, "small", "undecided"),
        (
            {"small": {"a": "holds", "b": None}, "micro": {"a": "fails"}},
            "small",
            "undecided",
        ),
        ({}, None, None),
    ],
    ids=[
        "half of a larger scale",
        "a part that decides",
        "most of it",
        "all of it",
        "parts alone",
        "as many cases as at a smaller scale",
        "nothing",
    ],
)
def test_the_largest_scale_that_tells_enough_decides(tmp_path, parts, scale, verdict):
    (found,) = judged(paper_of(parts), Store(folder=tmp_path))

    assert (found.scale, found.verdict and found.verdict.verdict) == (scale, verdict)


def test_a_verdict_tells_the_seeds_of_what_it_was_found_from(tmp_path):
    store, elsewhere = Store(folder=tmp_path), cell("Elsewhere", rounds=3)
    (tmp_path / "cells").mkdir()
    for seed in range(5):
        write_outcome(store.path(elsewhere.key(seed)), outcome([0.9]))
    paper = paper_of({"micro": {"a": "holds"}})
    (nothing,) = judged(paper, store)
    write_outcome(store.path(OWN.key(0)), outcome([0.9]))
    (one,) = judged(paper, Store(folder=tmp_path))
    for seed in range(3):
        write_outcome(store.path(OTHER.key(seed)), outcome([0.9]))
    (several,) = judged(paper, Store(folder=tmp_path))

    assert [found.place for found in (nothing, one, several)] == ["micro", "micro, 1 seed", "micro, 1 to 3 seeds"]


class Nothing:
    """Nothing has been run; remembers what was asked for."""

    def __init__(self, scale: Scale) -> None:
        self.scale: Scale = scale
        self.asked: set[str] = set()

    def outcomes(self, cell: Cell) -> dict[int, Outcome]:
        self.asked.add(cell.key(0))
        return {}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", PAPERS)
def test_claims_are_about_cells_of_some_item(name, scale):
    paper = find_paper(name)
    run = {cell.key(0) for recipe in paper.recipes for cell in recipe.cells(scale)}
    found = Nothing(scale)

    for claim in paper.claims:
        claim.judge(found)

    assert found.asked
    assert found.asked <= run
