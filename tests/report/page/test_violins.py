"""Violins hold the clients' differences, by label and by the value of one option."""

from __future__ import annotations

import pytest

from plures.report.page.differing import flattened, the_difference
from tests.report.page.pages import charts, listed, missing
from tests.report.run_folders import write_run


def ditto(tmp_path, gain, **options):
    folder = tmp_path / "-".join(f"{name}{value}" for name, value in options.items())
    values = {"personal/test": [0.5 + gain, 0.5], "personal/train": [0.9, 0.5]}
    return write_run(folder, values, method="ditto", options=options)


@pytest.fixture
def fedavg(tmp_path):
    return write_run(tmp_path / "fedavg", {"personal/test": [0.5, 0.5], "personal/train": [0.5, 0.5]})


def test_each_label_has_a_violin_of_its_clients(fedavg, tmp_path):
    (only,) = charts(fedavg, ditto(tmp_path, 0.2, lam=1.0))["violin-test"].traces
    assert listed(only["y"]) == pytest.approx([20.0, 0.0])
    assert only["text"] == ["c0", "c1"]


def test_values_of_one_option_stand_in_order_with_train_beside_test(fedavg, tmp_path):
    runs = [ditto(tmp_path, gain, lam=lam, lr=0.1) for lam, gain in ((10.0, 0.1), (0.0, 0.3), (1.0, 0.2))]
    chart = charts(fedavg, *runs)["sweep-0"]
    places = [(trace["offsetgroup"], trace["x"][0]) for trace in chart.traces]
    test = [trace for trace in chart.traces if trace["offsetgroup"] == "test"]

    assert places == [(split, value) for split in ("train", "test") for value in ("0", "1", "10")]
    assert [listed(trace["y"])[0] for trace in test] == pytest.approx([30, 20, 10])
    assert "method_options.lam" in chart.title


def test_two_options_that_differ_make_no_sweep(fedavg, tmp_path):
    runs = [ditto(tmp_path, 0.1, lam=0.0, lr=0.1), ditto(tmp_path, 0.1, lam=1.0, lr=0.2)]
    assert "sweep-0" not in charts(fedavg, *runs)
    assert "differ in one number" in missing(fedavg, *runs)["Spread of the differences by the value of an option"]


def test_a_rate_of_dropout_deep_in_a_table_is_found():
    one, other = ({"model": {"input_dropout": {"rate": rate, "on": "head"}}, "rounds": 2} for rate in (0.0, 0.3))
    assert the_difference(flattened(one), flattened(other)) == "model.input_dropout.rate"
    assert the_difference(flattened(one), flattened(one)) is None
    assert the_difference({"flag": True}, {"flag": False}) is None
