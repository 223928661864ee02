"""Rounds to a target and to a share of the final value, by hand."""

from __future__ import annotations

import math

from plures.report.milestones import curve, milestones, relative_rounds, rounds_to, rounds_to_share

NAME = "personal/test/accuracy"
LINES = [
    {"round": round, "metrics": {NAME: {"weighted": value}}} if value is not None else {"round": round}
    for round, value in enumerate([0.2, None, 0.55, 0.7, 0.6, 0.8, None], 1)
]
VALUES = [(1, 0.2), (3, 0.55), (4, 0.7), (5, 0.6), (6, 0.8)]


def test_a_curve_has_the_rounds_that_were_evaluated():
    assert curve(LINES, NAME) == VALUES
    assert curve(LINES, "global/test/accuracy") == []


def test_the_first_round_that_is_as_good_counts_even_if_a_later_one_is_not():
    assert [rounds_to(VALUES, target) for target in (0.2, 0.55, 0.6, 0.7, 0.8, 0.81)] == [1, 3, 4, 4, 6, None]


def test_of_an_error_smaller_is_as_good():
    errors = [(1, 3.0), (2, 1.5), (3, 1.0)]
    assert [rounds_to(errors, target, smaller_is_better=True) for target in (3.0, 2.0, 0.5)] == [1, 2, None]
    # The final 1.0 over 0.8 is 1.25, which only round 3 has; over 0.6 it is 1.67.
    assert rounds_to_share(errors, smaller_is_better=True) == 3
    assert rounds_to_share(errors, 0.6, smaller_is_better=True) == 2


def test_a_share_is_of_the_last_value_not_of_the_best():
    """0.8 * 0.8 = 0.64 is had in round 4; of a run that ends at 0.6, 0.48 is had in round 3."""
    assert rounds_to_share(VALUES) == 4
    assert rounds_to_share(VALUES[:-1]) == 3
    assert rounds_to_share([]) is None


def test_rounds_over_those_of_a_reference():
    assert relative_rounds(6, 4) == 1.5
    assert relative_rounds(None, 4) is relative_rounds(6, None) is None


def test_a_result_tells_rounds_or_how_many_were_not_enough():
    assert milestones(LINES, NAME, [0.7, 0.9], smaller_is_better=False) == {
        "metric": NAME,
        "targets": {"0.7": 4, "0.9": ">7"},
        "share": 0.8,
        "share_of_final": 4,
    }
    assert milestones([], NAME, [0.5], smaller_is_better=False)["targets"] == {"0.5": ">0"}


def test_a_run_that_ends_with_an_infinite_error_has_no_share_of_it():
    """In rounds.jsonl such a number is null; the last finite one is not the end of the run."""
    lines = [{"round": 1, "metrics": {"a": {"weighted": 2.0}}}, {"round": 2, "metrics": {"a": {"weighted": None}}}]

    assert rounds_to_share(curve(lines, "a"), smaller_is_better=True) is None
    assert rounds_to_share([(1, 2.0), (2, math.inf)], smaller_is_better=True) is None
    assert rounds_to_share([(1, math.inf), (2, 2.0)], smaller_is_better=True) == 2
