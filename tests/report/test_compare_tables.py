"""A comparison as tables: they fit 80 columns whatever the numbers are."""

from __future__ import annotations

import pytest

from plures.report.bootstrap import Interval
from plures.report.compare_tables import deltas_sheet, labels_sheet
from plures.report.comparison import ComparedLabel, Difference, OverSeeds, Standing, StudyComparison
from plures.report.pairing import ClientDeltas
from plures.report.sheets import terminal_table
from tests.report.test_tables import text_of

INF = float("inf")
LONG = "a method of a long name, without_a_blank_for_very_many_letters_as_folders_have_them"
SCALES = {
    "accuracy": ("accuracy", 0.987654),
    "small error": ("rmse", 0.0123456),
    "middling error": ("rmse", 1234.5678),
    "large error": ("rmse", 123456.789),
    "tiny error": ("mae", 1.2345e-9),
    "huge error": ("mae", 1.2345e120),
    "infinite error": ("rmse", INF),
}


def compared(label: str, metric: str, value: float, seeds: int) -> ComparedLabel:
    """Numbers as wide as they come, each digit of which must be seen."""
    over = OverSeeds(values=tuple(value * (1 - seed / 100) for seed in range(seeds)))
    ends = None if value == INF else Interval(low=-value, high=-value / 2, level=0.95, resamples=100)
    quartiles = dict.fromkeys(("min", "lower_quartile", "median", "upper_quartile", "max", "mean"), -value)
    counts = {"clients": 20_000, "left_out": 0, "helped": 10_000, "hurt": 10_000, "same": 100, "sign_changes": 9999}
    deltas = ClientDeltas(**counts, **quartiles)
    return ComparedLabel(
        label=label,
        method="fedalt",
        model="personal",
        seeds=tuple(range(seeds)),
        last=Standing(weighted=over, bottom_decile=over, worst=over),
        selected=Standing(weighted=over, bottom_decile=over, worst=over),
        selected_rounds=(5,) * seeds,
        reference_model="global",
        difference=Difference(
            seeds=tuple(range(seeds)),
            clients=20_000,
            left_out=0,
            per_seed=OverSeeds(values=(-value,) * seeds),
            interval=ends,
            deltas=dict.fromkeys(("train", "validation", "test"), deltas),
        ),
        relative_rounds=12.34,
        num_bytes=999.9e6,
        not_counted=(),
        scored_once=False,
    )


def comparison(metric: str, value: float, seeds: int) -> StudyComparison:
    labels = ["local", "fedavg", LONG, *(f"label-{number}" for number in range(26, 30))]
    rows = tuple(compared(label, metric, value, seeds) for label in labels)
    return StudyComparison(metric=metric, split="test", asked_model=None, reference="fedavg", finished=True, rows=rows)


@pytest.mark.parametrize("seeds", [1, 3, 100])
@pytest.mark.parametrize(("metric", "value"), SCALES.values(), ids=SCALES)
def test_both_tables_fit_80_columns_with_every_digit(metric, value, seeds):
    found = comparison(metric, value, seeds)
    deltas = deltas_sheet(found)
    for sheet in (labels_sheet(found), deltas):
        text = text_of(terminal_table(sheet, stars=True))
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text
        assert sheet is not deltas or "train" in text
        assert "label-29" in text  # eight letters of a label are never folded


def test_numbers_of_a_row_stand_in_their_columns():
    sheet = labels_sheet(comparison("accuracy", 0.5, 1))
    first = {column.heading: cell.text for column, cell in zip(sheet.columns, sheet.rows[0], strict=True)}

    assert first["accuracy"] == "50.0"
    assert first["difference"] == "-50.0 [-50.0 -25.0]"
    assert (first["+/-"], first["rounds"], first["sent"]) == ("10000/10000", "12.34", "999.9 MB")
