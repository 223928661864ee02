"""Differences of clients are those of the records, each client where its examples are."""

from __future__ import annotations

import numpy as np
import pytest

from tests.report.page.pages import charts, listed, member, missing
from tests.report.run_folders import write_federation, write_run


@pytest.fixture
def pair(tmp_path):
    """Client 0 gains 30 points, client 1 loses 20, client 2 stays: a mean of 10 / 3 points."""
    own = {"personal/test": [0.8, 0.3, 0.4], "personal/train": [1.0, 0.5, 0.4]}
    runs = [
        write_run(tmp_path / "fedavg", {"personal/test": [0.5, 0.5, 0.4], "personal/train": [0.5, 0.5, 0.4]}),
        write_run(tmp_path / "ditto", own, method="ditto"),
    ]
    for run in runs:
        write_federation(run, [member(0, 7), member(1, 70), member(2, 700)])
    return runs


def by_kind(chart):
    return {trace["name"]: trace for trace in chart.traces}


def test_helped_hurt_and_same_have_their_own_colour_and_shape(pair):
    kinds = by_kind(charts(*pair)["delta-test-1"])

    assert {name: (listed(kinds[name]["x"]), kinds[name]["text"]) for name in ("helped", "hurt", "same")} == {
        "helped": ([7], ["c0"]),
        "hurt": ([70], ["c1"]),
        "same": ([700], ["c2"]),
    }
    assert listed(kinds["helped"]["y"]) == pytest.approx([30.0])
    assert listed(kinds["hurt"]["y"]) == pytest.approx([-20.0])
    looks = {(kinds[name]["marker"]["color"], kinds[name]["marker"]["symbol"]) for name in ("helped", "hurt", "same")}
    assert len({colour for colour, _ in looks}) == len({sign for _, sign in looks}) == 3


def test_the_line_is_the_mean_over_clients(pair):
    mean = by_kind(charts(*pair)["delta-test-1"])["mean"]
    assert mean["y"] == pytest.approx([10 / 3, 10 / 3])
    assert mean["x"] == [7, 700]


def test_train_and_test_have_panels_of_their_own(pair):
    found = charts(*pair)
    assert listed(by_kind(found["delta-train-1"])["helped"]["y"]) == pytest.approx([50.0])
    assert "1 of 3 clients helped, 0 hurt, 2 the same" in found["delta-train-1"].caption


def test_of_an_error_the_smaller_is_better_and_infinite_ones_are_told(tmp_path):
    """Client 0: 2 to 1 helps; client 1 overflows."""
    runs = [
        write_run(tmp_path / method, {"personal/test": values}, method=method, metric="rmse")
        for method, values in (("fedavg", [2.0, 2.0]), ("ditto", [1.0, np.inf]))
    ]
    chart = charts(*runs)["delta-test-1"]

    assert listed(by_kind(chart)["helped"]["y"]) == [-1.0]
    assert "hurt" not in by_kind(chart)
    assert "1 hurt" in chart.caption
    assert "1 with an infinite difference are not drawn" in chart.caption


def test_a_run_alone_has_a_sentence_and_no_panel(pair):
    assert "--beside fedavg" in missing(pair[0])["Clients helped and hurt, and the spread of differences"]
    assert not [key for key in charts(pair[0]) if key.startswith(("delta", "violin"))]


def test_a_split_that_was_not_scored_has_a_sentence(tmp_path):
    runs = [write_run(tmp_path / method, {"personal/test": [0.5]}, method=method) for method in ("fedavg", "local")]
    assert '"train" into `splits`' in missing(*runs)["Differences on train data"]


def test_many_clients_are_drawn_in_part_and_counted_in_full(tmp_path):
    """Of 5,000 evenly spread differences 2,000 are drawn, the smallest and the largest among them."""
    values = np.linspace(-0.25, 0.25, 5000)
    runs = [
        write_run(tmp_path / "fedavg", {"personal/test": [0.5] * 5000}, examples=[10] * 5000),
        write_run(tmp_path / "ditto", {"personal/test": list(0.5 + values)}, method="ditto", examples=[10] * 5000),
    ]
    chart = charts(*runs)["delta-test-1"]
    drawn = np.concatenate([trace["y"] for trace in chart.traces[:-1]])

    assert len(drawn) == 2000
    assert (drawn.min(), drawn.max()) == pytest.approx((-25.0, 25.0))
    assert "2,500 of 5,000 clients helped" in chart.caption
    assert "2,000 of 5,000 clients are drawn" in chart.caption
