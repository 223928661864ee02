"""Tables for a terminal of 80 columns."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from plures.report.tables import comparison_table, percent, readable_bytes, row_of

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

    assert (row.title, row.value, row.global_value, row.bottom_decile) == ("Mine", 0.123456, 0.75, 0.25)
    assert (row.helped, row.hurt, row.num_bytes, row.seconds) == (3, 2, 2000, 2.345)


def test_a_row_of_a_run_without_a_global_model_leaves_it_out():
    row = row_of("Mine", RESULT | {"metrics": {"personal/test/accuracy": NUMBERS}}, None)

    assert (row.global_value, row.helped, row.hurt) == (None, None, None)


def test_a_row_of_a_run_that_was_never_evaluated_is_empty():
    row = row_of("Mine", RESULT | {"metrics": {}}, None)

    assert (row.value, row.bottom_decile) == (None, None)
    assert text_of(comparison_table([row])).splitlines()[1].split() == ["Mine", *"-----", "2.0", "kB", "2.3", "s"]


def test_methods_stand_under_each_other_within_80_columns():
    large = RESULT | {"cost": {"bytes_down": 999.9e6, "bytes_up": 0, "seconds": 12345.6}}
    rows = [row_of("FedAvg", RESULT, None), row_of("FedAlt (all)", large, (1000, 1000))]

    lines = text_of(comparison_table(rows)).splitlines()

    assert lines[0].split() == ["method", "personal", "global", "bottom", "10%", "helped", "hurt", "sent", "time"]
    assert lines[1].split() == ["FedAvg", "12.3%", "75.0%", "25.0%", "-", "-", "2.0", "kB", "2.3", "s"]
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


def emphasised(rows) -> list[str]:
    """What is bold, from the escapes of a terminal."""
    file = io.StringIO()
    Console(file=file, width=80, force_terminal=True, color_system="standard", legacy_windows=False).print(
        comparison_table(rows)
    )
    body = file.getvalue().partition("\n")[2]
    return re.findall(r"\x1b\[1m *(.*?)\x1b\[0m", body)


def judged(metric: str, *values: float | None) -> list:
    results = [
        RESULT | {"metric": metric, "metrics": {f"personal/test/{metric}": NUMBERS | {"weighted": value}}}
        for value in values
    ]
    return [row_of(f"M{number}", result, None) for number, result in enumerate(results)]


def test_the_best_accuracy_is_the_largest_and_in_percent():
    assert emphasised(judged("accuracy", 0.25, 0.75, None, 0.5)) == ["75.0%"]


def test_the_best_error_is_the_smallest_and_no_percentage():
    assert emphasised(judged("rmse", 2.5, float("inf"), 0.75, float("nan"))) == ["0.75"]
    lines = text_of(comparison_table(judged("rmse", 2.5, float("inf")))).splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["2.5", "inf"]
    assert not any("%" in line for line in lines[1:])


def test_where_every_model_overflows_none_is_the_best():
    assert emphasised(judged("rmse", float("inf"), None)) == []
