"""Numbers read off outcomes, and verdicts by paired differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from plures.papers.blocks import Entry, Verdict
from plures.papers.reading import all_of, better, entry, grid_rows, last, line, paired
from tests.papers.made_up import METRIC, OTHER, OWN, MadeUp, outcome


def test_an_entry_is_the_mean_over_seeds_with_its_deviation():
    found = MadeUp()
    found.put(OWN, outcome([0.5, 0.7]))
    found.put(OWN, outcome([0.7, 0.9]), seed=1)

    measured = entry(found, OWN, last(METRIC), 71.0)

    # Means of the seeds are 60 and 80 %: their mean is 70, their deviation (ddof 0) 10.
    assert measured == Entry(measured=pytest.approx(70.0), spread=pytest.approx(10.0), seeds=2, published=71.0)


def test_an_entry_of_what_has_not_run_has_only_what_was_published():
    assert entry(MadeUp(), OWN, last(METRIC), 71.0) == Entry(published=71.0)


def test_there_is_no_mean_of_seeds_some_of_which_diverged():
    found = MadeUp()
    found.put(OWN, outcome([0.5, 0.7]))
    found.put(OWN, replace(outcome([0.9, 0.9]), status="diverged"), seed=1)

    assert entry(found, OWN, last(METRIC)) == Entry(measured="diverged")


def test_rows_that_were_published_and_cannot_run_are_in_the_table():
    rows = grid_rows(MadeUp(), [OWN], last(METRIC), ["digits", "letters"], {"Other": {"letters": 3.0}})

    assert rows == {"Local": [Entry(), None], "Other": [None, Entry(published=3.0)]}


def test_a_line_has_the_rounds_that_all_seeds_have():
    found = MadeUp()
    found.put(OWN, outcome([0.4], rounds=(1, 2)))
    found.put(OWN, outcome([0.8], rounds=(2, 4)), seed=1)

    drawn = line(found, OWN, METRIC)

    assert drawn is not None
    assert (drawn.x, drawn.y) == ([2], [pytest.approx(40.0)])  # 0.4 and half of 0.8
    assert line(found, OTHER, METRIC) is None


@pytest.mark.parametrize(("shift", "verdict"), [(0.1, "holds"), (-0.1, "fails"), (0.0, "undecided")])
def test_better_is_decided_by_the_interval_of_the_paired_difference(shift, verdict):
    found, noise = MadeUp(), 0.02 * np.random.default_rng(0).standard_normal(40)
    found.put(OWN, outcome(list(0.8 + shift + noise - noise.mean())))
    found.put(OTHER, outcome([0.8] * 40))

    judged = better(paired(found, OWN, OTHER), "a", "b")

    assert judged is not None
    assert judged.verdict == verdict
    assert judged.interval is not None
    assert judged.interval[0] < 100 * shift < judged.interval[1]


def test_nothing_is_said_of_cells_that_have_not_run():
    assert better(paired(MadeUp(), OWN, OTHER), "a", "b") is None


YES, NO, MAYBE = (Verdict(verdict=word, figure=word) for word in ("holds", "fails", "undecided"))


@pytest.mark.parametrize(
    ("parts", "enough", "verdict"),
    [
        ([YES, YES], None, "holds"),
        ([YES, NO], None, "fails"),
        ([YES, MAYBE], None, "undecided"),
        ([YES, YES, NO], 2, "holds"),
        ([YES, NO, NO], 2, "fails"),
        ([YES, None], None, "undecided"),
    ],
)
def test_a_claim_about_several_cases_needs_them_all_or_enough(parts, enough, verdict):
    judged = all_of({str(place): part for place, part in enumerate(parts)}, enough=enough)

    assert judged is not None
    assert judged.verdict == verdict


def test_a_claim_of_which_nothing_has_run_has_no_verdict():
    assert all_of({"a": None}) is None


def test_a_claim_about_several_cases_tells_the_smallest_and_the_largest_difference():
    found = MadeUp()
    found.put(OTHER, outcome([0.5, 0.7]))
    found.put(OWN, outcome([0.6, 0.8]))
    above = better(paired(found, OWN, OTHER), "a", "b")
    below = better(paired(found, OTHER, OWN), "b", "a")

    judged = all_of({"above": above, "below": below, "of another kind": YES, "not run": None})

    # Each client is 10 points above its other self.
    assert judged is not None
    assert judged.span == pytest.approx((-10.0, 10.0))
