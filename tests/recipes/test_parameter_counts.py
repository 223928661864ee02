"""A result tells how many parameters travel and how many a client keeps for itself."""

from __future__ import annotations

import pytest

from plures.recipes import make_experiment, run_experiment

BODY, HEAD = 64 * 8 + 8, 8 * 10 + 10
"""Weights and biases of a network with 8 hidden units on digits of 64 pixels."""


@pytest.mark.parametrize(
    ("method", "shared", "personal"),
    [
        ("fedavg", BODY + HEAD, 0),
        ("fedper", BODY, HEAD),
        ("local", 0, BODY + HEAD),
        ("ditto", BODY + HEAD, BODY + HEAD),
        ("fedspa", BODY + HEAD, 0),  # masks are no parameters
    ],
)
def test_parameters_are_counted_by_whose_they_are(method, shared, personal):
    table = {"method": method, "rounds": 1, "cohort": 2, "data": {"clients": 5}, "model": {"hidden": [8]}}
    result = run_experiment(make_experiment(table), out=None)
    assert result.as_json()["parameters"] == {"shared": shared, "personal": personal}


def test_running_statistics_are_not_counted():
    """Batch norm has a weight and a bias of 8 each, which are."""
    table = {"method": "fedbn", "rounds": 1, "cohort": 2, "data": {"clients": 5}}
    model = {"model": {"hidden": [8], "batch_norm": True}}
    result = run_experiment(make_experiment(table | model), out=None)
    assert result.as_json()["parameters"] == {"shared": BODY + HEAD, "personal": 16}
