"""Tables for a terminal of 80 columns."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from plures.report.tables import comparison_table, metrics_table, percent, readable_bytes, row_of

NUMBERS = {"weighted": 0.123456, "mean": 0.5, "std": 0.01, "bottom_decile": 0.25, "worst": 0.0}
RESULT = {
    "headline": "personal",
    "metric": "accuracy",
    "metrics": {"personal/test/accuracy": NUMBERS, "global/test/accuracy": NUMBERS | {"weighted": 0.75}},
    "cost": {"bytes_down": 1500, "bytes_up": 500, "seconds": 2.345},
}


def text_of(table, width: int = 80) -> str:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(table)
    return file.getvalue()


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (769_600, "769.6 kB"),
        (1_250_000, "1.2 MB"),
        (2_000_000_000, "2.0 GB"),
        (3.5e12, "3.5 TB"),
        (4.2e15, "4200.0 TB"),
    ],
)
def test_bytes_are_shown_in_units_of_a_thousand(count, text):
    assert readable_bytes(count) == text


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0.0, "0.0%"), (0.12345, "12.3%"), (1.0, "100.0%")])
def test_accuracies_are_shown_in_percent(value, text):
    assert percent(value) == text


def test_a_row_is_of_the_model_the_method_is_judged_by():
    row = row_of("Mine", RESULT, (3, 2))

    assert (row.title, row.accuracy, row.global_accuracy, row.bottom_decile) == ("Mine", 0.123456, 0.75, 0.25)
    assert (row.helped, row.hurt, row.num_bytes, row.seconds) == (3, 2, 2000, 2.345)


def test_a_row_of_a_run_without_a_global_model_leaves_it_out():
    row = row_of("Mine", RESULT | {"metrics": {"personal/test/accuracy": NUMBERS}}, None)

    assert (row.global_accuracy, row.helped, row.hurt) == (None, None, None)


def test_a_row_of_a_run_that_was_never_evaluated_is_empty():
    row = row_of("Mine", RESULT | {"metrics": {}}, None)

    assert (row.accuracy, row.bottom_decile) == (None, None)
    assert text_of(comparison_table([row])).splitlines()[1].split() == ["Mine", *"-----", "2.0", "kB", "2.3", "s"]


def test_methods_stand_under_each_other_within_80_columns():
    large = RESULT | {"cost": {"bytes_down": 999.9e6, "bytes_up": 0, "seconds": 12345.6}}
    rows = [row_of("FedAvg", RESULT, None), row_of("FedAlt (all)", large, (1000, 1000))]

    lines = text_of(comparison_table(rows)).splitlines()

    assert lines[0].split() == ["method", "personal", "global", "bottom", "10%", "helped", "hurt", "sent", "time"]
    assert lines[1].split() == ["FedAvg", "12.3%", "75.0%", "25.0%", "-", "-", "2.0", "kB", "2.3", "s"]
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


def test_losses_are_shown_with_four_digits_and_accuracies_in_percent():
    lines = text_of(metrics_table({"global/test/accuracy": NUMBERS, "global/test/loss": NUMBERS})).splitlines()

    assert lines[1].split() == ["global/test"]
    assert lines[2].split() == ["accuracy", "12.3%", "50.0%", "1.0%", "25.0%", "0.0%"]
    assert lines[3].split() == ["loss", "0.1235", "0.5", "0.01", "0.25", "0"]


def test_a_metric_that_no_client_has_is_left_out_of_the_table():
    nothing = dict.fromkeys(NUMBERS, float("nan"))

    text = text_of(metrics_table({"global/test/auc": nothing, "global/test/loss": NUMBERS}))

    assert "auc" not in text
    assert "loss" in text


def test_the_longest_metric_fits_80_columns_with_every_digit():
    large = dict.fromkeys(NUMBERS, 0.012345)

    longest = "newcomers/finetuned/validation/balanced_accuracy"
    text = text_of(metrics_table({longest: NUMBERS, "global/test/loss": large}))

    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "0.01235" in text or "0.01234" in text
