"""Advice on which part should be personal: what is tried, on which data it is judged, and in which order it is told."""

from __future__ import annotations

import json
import tomllib

import pytest

from plures import make_experiment, run_experiment
from plures.recipes.advising import CANDIDATES, REFERENCE, advise
from plures.report import records
from tests.recipes.helpers import table


def advice(tmp_path, seeds=1, **changes):
    experiment = make_experiment(table(**{"method": "fedalt"} | changes))
    found = advise(experiment, run_experiment, out=tmp_path / "advice", rounds=2, pretrain=2, seeds=seeds)
    return {row.part: row for row in found}


def test_every_part_is_tried_or_the_reason_is_told(tmp_path):
    """An MLP of 4, 5 and 4 with batch norm: 25 + 10 + 24 parameters; LoRA of rank 4 adds 4 (4 + 5) + 4 (5 + 4)."""
    found = advice(tmp_path, model={"hidden": [5], "batch_norm": True}, split={"buffers": "shared"})
    assert set(found) == {REFERENCE, *(candidate.part for candidate in CANDIDATES)}
    sizes = {part: row.personal_parameters for part, row in found.items() if row.skipped is None}
    own = {"input layer": 35, "output layer": 24, "norms": 10, "LoRA adapters": 72, "full model": 59}
    assert sizes == {REFERENCE: 0, **own}
    assert found["norms"].share == pytest.approx(10 / 59)
    assert found["LoRA adapters"].share == pytest.approx(72 / (59 + 72))
    assert "convolution" in found["conv adapters"].skipped


def test_gains_are_over_the_shared_model_on_validation_data(tmp_path):
    found = advice(tmp_path)
    before = found[REFERENCE].value
    for part, row in found.items():
        if row.skipped is None and part != REFERENCE:
            folder = tmp_path / "advice" / part.replace(" ", "-") / "seed-0"
            metrics = records.read_result(folder)["metrics"]
            assert all("/test/" not in name for name in metrics)
            assert row.value == metrics["personal/validation/accuracy"]["weighted"]
            assert row.gain == pytest.approx(row.value - before)
            assert row.per_thousand_parameters == pytest.approx(1000 * row.gain / row.personal_parameters)
            cost = records.read_result(folder)["cost"]
            assert row.megabytes == pytest.approx((cost["bytes_up"] + cost["bytes_down"]) / 1e6)
    assert found["full model"].per_megabyte is None
    assert found["full model"].megabytes == 0


def test_those_that_gain_most_for_a_parameter_come_first(tmp_path):
    found = advice(tmp_path)
    tried = [row.per_thousand_parameters for row in found.values() if row.skipped is None][1:]
    assert tried == sorted(tried, reverse=True)
    assert next(iter(found)) == REFERENCE
    assert [row["part"] for row in json.loads((tmp_path / "advice/advice.json").read_text(encoding="utf-8"))] == list(
        found
    )


def test_all_begin_with_one_shared_model_that_is_trained_once(tmp_path):
    advice(tmp_path)
    assert len(list((tmp_path / "advice/pretrained").iterdir())) == 1


def test_gains_are_means_over_seeds(tmp_path):
    found = advice(tmp_path, seeds=2)
    for part in (REFERENCE, "output layer"):
        folders = [tmp_path / "advice" / part.replace(" ", "-") / f"seed-{seed}" for seed in (0, 1)]
        kind = "global" if part == REFERENCE else "personal"
        values = [records.read_result(f)["metrics"][f"{kind}/validation/accuracy"]["weighted"] for f in folders]
        assert found[part].value == pytest.approx(sum(values) / 2)


def test_its_lines_are_a_file_that_makes_that_part_personal(tmp_path):
    found = advice(tmp_path)
    for row in found.values():
        if row.lines:
            written = make_experiment(tomllib.loads(row.lines))
            assert written.pipeline.pretrain.rounds == 2
    assert make_experiment(tomllib.loads(found["output layer"].lines)).split.personal == "output_layer"


@pytest.mark.parametrize(("method", "used"), [("fedavg", "fedalt"), ("fedper", "fedper"), ("finetune", "fedalt")])
def test_a_method_with_a_part_to_choose_is_kept_and_fedalt_stands_in_for_others(method, used, tmp_path):
    found = advice(tmp_path, method=method)
    assert tomllib.loads(found["output layer"].lines)["method"] == used


def test_a_part_that_diverges_is_told_and_the_others_are_tried(tmp_path):
    """Rates that only the personal phase takes: the full model, which trains by `lr`, is none of it."""
    found = advice(tmp_path, method_options={"personal_lr": 1e30, "lr": 0.1})
    assert "diverged" in found["output layer"].skipped
    assert found["full model"].gain is not None
    assert (tmp_path / "advice/advice.json").exists()


def test_options_that_were_tried_stand_in_the_lines(tmp_path):
    found = advice(tmp_path, method_options={"lr": 0.03, "personal_lr": 0.02})
    table = tomllib.loads(found["output layer"].lines)
    assert table["method_options"] == {"lr": 0.03, "personal_lr": 0.02}
    assert table["pipeline"]["pretrain"]["lr"] == 0.03
    assert tomllib.loads(found["full model"].lines)["method_options"] == {"lr": 0.03}
