"""The metrics of one run: in percent or in digits, models that are the same once, within 80 columns."""

from __future__ import annotations

import pytest

from plures.report.metric_tables import metrics_table
from tests.report.test_tables import NUMBERS, text_of


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


def heads_of(metrics) -> list[str]:
    return [line.strip() for line in text_of(metrics_table(metrics)).splitlines()[1:] if not line.startswith("  ")]


def results(**by_model) -> dict[str, dict[str, float]]:
    """Of models by name: an accuracy and a loss on two splits, alike but for what is given."""
    return {
        f"{model.replace('__', '/')}/{split}/{metric}": NUMBERS | changes
        for model, changes in by_model.items()
        for split in ("validation", "test")
        for metric in ("accuracy", "loss")
    }


def test_models_that_are_the_same_stand_there_once():
    found = results(**{"global": {}, "personal": {}, "finetuned": {"mean": 0.75}})
    assert heads_of(found) == [
        *("global = personal/validation", "global = personal/test"),
        *("finetuned/validation", "finetuned/test"),
    ]
    assert len(text_of(metrics_table(found)).splitlines()) == 1 + 4 * 3


@pytest.mark.parametrize("name", ["personal/validation/loss", "personal/test/accuracy"])
def test_one_number_that_differs_keeps_models_apart_on_every_split(name):
    found = results(**{"global": {}, "personal": {}})
    found[name] = found[name] | {"worst": 1e-9}
    assert len(heads_of(found)) == 4


def test_a_model_that_has_a_metric_or_split_more_is_another():
    found = results(**{"global": {}, "personal": {}})
    assert len(heads_of(found | {"personal/train/loss": NUMBERS})) == 5
    assert len(heads_of(found | {"personal/test/auc": NUMBERS})) == 4


def test_numbers_that_are_none_are_the_same():
    nothing = {"std": float("nan"), "worst": None}
    assert heads_of(results(**{"global": nothing, "personal": nothing})) == [
        "global = personal/validation",
        "global = personal/test",
    ]


def test_newcomers_and_participants_are_never_one():
    found = results(**{"global": {}, "newcomers__global": {}, "newcomers__finetuned": {}})
    assert heads_of(found) == [
        *("global/validation", "global/test"),
        *("newcomers/global =", "finetuned/validation", "newcomers/global =", "finetuned/test"),
    ]


def test_many_models_that_are_the_same_fit_80_columns():
    found = results(**{"global": {}, "personal": {}, "post_local": {}, "finetuned": {}, "guarded": {}})
    text = text_of(metrics_table({name: dict.fromkeys(NUMBERS, 0.012345) for name in found}))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
