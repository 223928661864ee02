"""Clients from the worst to the best, with the band of their seeds."""

from __future__ import annotations

import pytest

from tests.report.page.pages import charts, listed
from tests.report.run_folders import write_run


def test_clients_stand_in_the_order_of_their_mean_over_seeds(tmp_path):
    """Means: c0 0.5, c1 0.3, c2 0.8; client 3 lacks a value under one seed."""
    runs = [
        write_run(tmp_path / f"run-{seed}", {"personal/test": values}, seed=seed)
        for seed, values in enumerate(([0.4, 0.2, 0.7, 0.9], [0.6, 0.4, 0.9, None]))
    ]
    band, line = charts(*runs)["ranks"].traces

    assert line["text"] == ["c1", "c0", "c2"]
    assert listed(line["y"]) == pytest.approx([0.3, 0.5, 0.8])
    assert listed(band["y"]) == pytest.approx([0.4, 0.6, 0.9, 0.7, 0.4, 0.2])
    assert listed(line["x"]) == pytest.approx([1 / 6, 3 / 6, 5 / 6])


def test_of_an_error_the_largest_comes_first(tmp_path):
    run = write_run(tmp_path / "run", {"personal/test": [1.0, 3.0, 2.0]}, metric="rmse")
    (line,) = charts(run)["ranks"].traces
    assert line["text"] == ["c1", "c2", "c0"]
