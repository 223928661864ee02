"""Curves have the numbers of rounds.jsonl: the mean over seeds, and a band between them."""

from __future__ import annotations

import pytest

from plures.report.page.axes import metric_range
from tests.report.page.pages import charts, listed, missing, write_rounds
from tests.report.run_folders import write_run


def line(round, accuracy, *, seconds, sent=(100, 50), loss=1.0):
    metrics = {f"personal/test/{name}": {"weighted": value} for name, value in (("accuracy", accuracy), ("loss", loss))}
    told = {} if accuracy is None else {"metrics": metrics}
    return {"round": round, "bytes_down": sent[0], "bytes_up": sent[1], "seconds": seconds, **told}


@pytest.fixture
def two_seeds(tmp_path):
    """Round 2 is not evaluated; of seed 1 round 4 is, which seed 0 does not have."""
    runs = [write_run(tmp_path / f"run-{seed}", {"personal/test": [0.5, 0.5]}, seed=seed) for seed in (0, 1)]
    write_rounds(runs[0], [line(1, 0.2, seconds=1.0), line(2, None, seconds=2.0), line(3, 0.6, seconds=4.0)])
    later = [line(2, None, seconds=3.0), line(3, 0.8, seconds=6.0), line(4, 0.9, seconds=8.0)]
    write_rounds(runs[1], [line(1, 0.4, seconds=3.0), *later])
    return runs


def test_a_line_is_the_mean_of_seeds_in_rounds_that_all_have(two_seeds):
    """Round 1: (0.2 + 0.4) / 2; round 3: (0.6 + 0.8) / 2."""
    band, mean = charts(*two_seeds)["curve-accuracy-round"].traces

    assert listed(mean["x"]) == [1, 3]
    assert listed(mean["y"]) == pytest.approx([0.3, 0.7])
    assert listed(band["x"]) == [1, 3, 3, 1]
    assert listed(band["y"]) == pytest.approx([0.4, 0.8, 0.6, 0.2])


def test_bytes_are_summed_over_all_rounds_and_time_is_since_the_start(two_seeds):
    """150 bytes a round; the means of 1 and 3 seconds, of 4 and 6."""
    found = charts(*two_seeds)

    assert listed(found["curve-accuracy-bytes"].traces[1]["x"]) == [150, 450]
    assert listed(found["curve-loss-time"].traces[1]["x"]) == [2.0, 5.0]


def test_a_run_alone_has_no_band(two_seeds):
    (only,) = charts(two_seeds[0])["curve-accuracy-round"].traces
    assert listed(only["y"]) == [0.2, 0.6]


def test_axes_of_shares_show_tenths_and_end_at_0_and_1(two_seeds):
    found = charts(two_seeds[0])

    shares = found["curve-accuracy-round"].layout["yaxis"]
    assert shares["tickformat"] == "~%"
    assert shares["autorangeoptions"] == {"clipmin": 0, "clipmax": 1}
    assert not {"tickformat", "autorangeoptions"} & found["curve-loss-round"].layout["yaxis"].keys()


@pytest.mark.parametrize(
    ("metric", "value", "expected"),
    [("accuracy", 1.0, [0.5, 1.0]), ("accuracy", 0.0, [0.0, 1.0]), ("loss", 1.0, [0.5, 1.5])],
)
def test_the_range_around_one_share_has_only_shares(metric, value, expected):
    assert metric_range(metric, value, value) == expected


def test_a_number_that_records_cannot_hold_is_a_gap(two_seeds):
    write_rounds(two_seeds[0], [line(1, 0.2, seconds=1.0, loss=None), line(3, 0.6, seconds=4.0, loss=2.0)])
    (only,) = charts(two_seeds[0])["curve-loss-round"].traces
    assert str(listed(only["y"])) == "[nan, 2.0]"


def test_without_an_evaluated_round_a_sentence_says_what_to_do(two_seeds):
    write_rounds(two_seeds[0], [line(1, None, seconds=1.0)])
    why = missing(two_seeds[0])["Accuracy on test data against rounds, bytes and time"]
    assert "set `every`" in why
