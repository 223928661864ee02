"""One label, client by client, from folders written by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from plures.core.errors import InvalidConfig, RunFolderError
from plures.report.client_report import client_report
from plures.report.client_tables import shown_rows
from plures.report.clients import in_order, overview_of
from plures.report.comparing import Asked, compare_series
from plures.report.references import read_with_reference
from tests.report.run_folders import write_federation, write_run, write_study

INF = float("inf")


@pytest.fixture
def runs(tmp_path):
    """Two seeds of a method, each followed by its reference; three clients."""
    found = []
    for seed, shift in ((0, 0.0), (1, 0.1)):
        mine = {"personal/test": [0.6 + shift, 0.5, 0.4], "personal/train": [0.9, 0.9, 0.9]}
        found.append(write_run(tmp_path / f"a{seed}", mine, method="fedalt", seed=seed))
        found.append(write_run(tmp_path / f"b{seed}", {"global/test": [0.5] * 3}, seed=seed, headline="global"))
    return found


def test_a_client_has_its_mean_over_seeds_and_its_difference(tmp_path, runs):
    for folder in (runs[0], runs[2]):
        people = [
            {"client": client, "name": f"c{client}", "role": "participant", "train": 30 - client, "validation": 0,
             "test": 10, "classes": 2, "train_labels": '{"3": 20, "7": 10}', "test_labels": '{"3": 10}'}
            for client in range(4)
        ]  # fmt: skip
        write_federation(folder, [*people, people[0] | {"role": "newcomer", "train": 99}])
    (tmp_path / "study.json").write_text(
        json.dumps({"runs": [{"label": "mine", "seed": seed, "folder": f"a{seed}"} for seed in (0, 1)]}),
        encoding="utf-8",
    )

    found = client_report(tmp_path, Asked(), against=str(runs[1]))

    assert (found.label, found.reference, found.paired_seeds, found.without) == ("mine", "fedavg", (0,), 1)
    first = found.rows[0]
    assert (first.values["accuracy"], first.delta) == pytest.approx((0.65, 0.1))
    assert (first.member.train, first.member.classes) == (30, 2)
    assert found.as_json()["clients"][0]["train_labels"] == {"3": 20, "7": 10}
    assert [row.name for row in in_order(found).known] == ["c2", "c1", "c0"]
    assert [row.name for row in in_order(found, "examples").known] == ["c2", "c1", "c0"]
    assert [row.name for row in in_order(found, "name").known] == ["c0", "c1", "c2"]
    assert [row.name for row in in_order(found, "accuracy").known] == ["c2", "c1", "c0"]
    with pytest.raises(InvalidConfig, match="Known: accuracy, delta, examples, loss, name"):
        in_order(found, "colour")


def test_of_errors_the_largest_is_the_worst(tmp_path):
    run = write_run(tmp_path / "a", {"personal/test": [1.0, 3.0, 2.0]}, metric="rmse")

    found = client_report(run, Asked())

    assert [row.name for row in in_order(found).known] == ["c1", "c2", "c0"]
    assert (found.overview.worst, found.overview.bottom_decile, found.overview.best) == (3.0, 3.0, 1.0)
    with pytest.raises(InvalidConfig, match="--against"):
        in_order(found, "delta")


def test_the_bottom_decile_is_the_element_at_a_tenth_from_the_worst():
    """Of 20 values the third from the worst, of 9 the worst; clients without a value do not count."""
    accuracies = np.array([*np.arange(20) / 20, np.nan])

    assert overview_of(accuracies, "accuracy").bottom_decile == 0.1
    assert overview_of(accuracies, "rmse").bottom_decile == 0.85
    assert overview_of(accuracies[:9], "accuracy").bottom_decile == 0.0
    assert overview_of(accuracies[20:], "accuracy") is None


def test_clients_without_a_value_are_last_and_not_among_the_best(tmp_path):
    values = [None if client % 20 == 0 else client / 100 for client in range(40)]
    found = client_report(write_run(tmp_path / "a", {"personal/test": values}), Asked())
    order = in_order(found)

    first, last = shown_rows(order, None)

    assert [row.client for row in order.unknown] == [0, 20]
    assert [row.client for row in first] == list(range(1, 16))
    assert [row.client for row in last] == list(range(25, 40))
    assert [row.client for row in shown_rows(order, 3)[0]] == [1, 2, 3]


def test_names_with_numbers_are_sorted_by_these(tmp_path):
    found = client_report(write_run(tmp_path / "a", {"personal/test": [0.5] * 12}), Asked())

    assert [row.name for row in in_order(found, "name").known] == [f"c{client}" for client in range(12)]


def test_clients_need_a_seed_in_common_with_the_reference(runs):
    with pytest.raises(InvalidConfig, match=r"no seed in common \(0; 1\)"):
        client_report(runs[0], Asked(), against=str(runs[3]))
    with pytest.raises(InvalidConfig, match="no scores global/train/accuracy"):
        client_report(runs[0], Asked(split="train"), against=str(runs[1]))


def test_a_pipeline_is_compared_with_the_global_model_of_stage_a(tmp_path):
    start = write_run(tmp_path / "kept", {"global/test": [0.5, 0.5], "personal/test": [0.0, 0.0]}, headline="global")
    stages = {"stages": [{"stage": "pretrain", "rounds": 3, "folder": str(start)}]}
    own = write_run(
        tmp_path / "own", {"finetuned/test": [0.6, 0.4]}, method="fedalt", headline="finetuned", result=stages
    )

    found = client_report(own, Asked(), against="stage-a")

    assert (found.reference, found.reference_model) == ("stage-a", "global")
    assert [row.delta for row in found.rows] == pytest.approx([0.1, -0.1])
    compared = compare_series(*read_with_reference([own], "stage-a"), Asked())
    assert (compared.reference, compared.rows[0].relative_rounds) == ("stage-a", None)
    assert compared.rows[0].difference.per_seed.mean == pytest.approx(0, abs=1e-12)


def test_a_damaged_file_of_the_federation_is_one_clear_error(tmp_path):
    run = write_run(tmp_path / "a", {"personal/test": [0.5]})
    (run / "federation.csv.gz").write_bytes(b"no gzip")

    with pytest.raises(RunFolderError, match=r"federation\.csv\.gz"):
        client_report(run, Asked())


def test_a_client_whose_model_overflows_is_the_worst(tmp_path):
    """Of 1, 2, 3, 4 and inf the quartiles are 2, 3 and 4, and the bottom decile is the worst."""
    own = write_run(tmp_path / "a", {"personal/test": [2.0, INF, 1.0, 3.0, 4.0, None]}, metric="rmse")
    before = write_run(tmp_path / "b", {"personal/test": [2.0] * 6}, metric="rmse", method="local")

    found = client_report(own, Asked(), against=str(before))

    overview = found.overview
    assert (overview.clients, overview.worst, overview.bottom_decile, overview.mean) == (5, INF, INF, INF)
    assert (overview.lower_quartile, overview.median, overview.upper_quartile, overview.best) == (2.0, 3.0, 4.0, 1.0)
    assert np.isnan(overview.std)
    assert [row.name for row in in_order(found).known] == ["c1", "c4", "c3", "c0", "c2"]
    assert (found.deltas["test"].hurt, found.deltas["test"].left_out) == (3, 1)


def test_over_seeds_an_infinite_error_stays_infinite(tmp_path):
    for seed, value in ((0, INF), (1, 1.0)):
        write_run(tmp_path / str(seed), {"personal/test": [value, 1.0]}, metric="rmse", seed=seed)
    study = write_study(tmp_path, [("mine", 0, "0"), ("mine", 1, "1")])

    assert [row.values["rmse"] for row in client_report(study, Asked()).rows] == [INF, 1.0]
