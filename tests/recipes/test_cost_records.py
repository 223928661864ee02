"""Costs in the records of a run: every visit a row, rounds and result their sums, and how far masks are apart."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plures import run
from plures.core.method import Method
from plures.core.networks import Network
from plures.local.masks import masks_in
from plures.methods import heterofl
from plures.models import as_networks, mlp
from plures.recipes.running import make_program
from plures.report import records
from tests.recipes.helpers import CLASSES, INPUTS, built, ran

SUMS = ("bytes_down", "bytes_up", "values_down", "values_up", "flops", "dense_flops", "search_flops")


@pytest.fixture(params=["fedavg", "fedspa", "scaffold", "fedmask"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
    return ran(request.param, tmp_path / "run", rounds=4, cohort=3), tmp_path / "run"


def by_round(folder: Path) -> Iterator[tuple[int, list[dict[str, str]]]]:
    for round, rows in itertools.groupby(records.read_visits(folder), key=lambda row: int(row["round"])):
        yield round, list(rows)


def test_every_visit_is_a_row_with_client_and_name(recorded):
    result, folder = recorded

    found = {round: tuple(int(row["client"]) for row in rows) for round, rows in by_round(folder)}

    assert found == {line["round"]: tuple(line["cohort"]) for line in result.history}
    for row in records.read_visits(folder):
        assert tuple(row) == records.VISIT_COLUMNS
        assert [column for column in records.VISIT_COLUMNS if row[column] == ""] == ["notes"]  # these methods make none
        assert row["name"] == result.federation.name(int(row["client"]))
        assert int(row["examples"]) == result.federation.num_examples(int(row["client"]))
        assert 0 < float(row["density"]) <= 1
        assert 0 <= float(row["refresh_seconds"]) <= float(row["seconds"])


def test_the_times_of_a_visit_are_those_of_its_phases_and_of_the_refresh(recorded):
    """Each is rounded to a microsecond, by at most half of one."""
    result, folder = recorded
    for row in records.read_visits(folder):
        phases = json.loads(row["phase_seconds"])
        assert phases.keys() == result.cost["phase_seconds"].keys()
        assert min(phases.values()) > 0
        assert sum(phases.values()) == pytest.approx(float(row["seconds"]), abs=0.5e-6 * (len(phases) + 1.01))
        assert phases.get("refresh", 0.0) == float(row["refresh_seconds"])


def test_a_method_with_two_phases_has_the_time_of_each(tmp_path):
    ran("fedrep", tmp_path / "run")

    for row in records.read_visits(tmp_path / "run"):
        assert json.loads(row["phase_seconds"]).keys() == {"personal", "shared"}


def test_the_rows_of_a_round_add_up_to_its_line(recorded):
    _, folder = recorded
    lines = {line["round"]: line for line in records.read_rounds(folder)}

    for round, rows in by_round(folder):
        for name in SUMS:
            assert lines[round][name] == sum(int(row[name]) for row in rows)
        assert lines[round]["peak_bytes"] == max(int(row["peak_bytes"]) for row in rows)
        seconds = sum(float(row["seconds"]) for row in rows)
        assert sum(lines[round]["phase_seconds"].values()) == pytest.approx(seconds, abs=1e-4)  # rounded
        visits = [json.loads(row["phase_seconds"]) for row in rows]
        for phase, total in lines[round]["phase_seconds"].items():
            assert total == pytest.approx(sum(visit[phase] for visit in visits), abs=1e-5)


def test_the_rounds_add_up_to_the_cost_of_the_result(recorded):
    result, folder = recorded
    lines, cost = records.read_rounds(folder), records.read_result(folder)["cost"]

    assert cost == json.loads(json.dumps(result.cost))
    for name in SUMS:
        assert cost[name] == sum(line[name] for line in lines)
    assert cost["peak_bytes"] == max(line["peak_bytes"] for line in lines)
    for phase, seconds in cost["phase_seconds"].items():
        assert seconds == pytest.approx(sum(line["phase_seconds"][phase] for line in lines), abs=1e-4)


def test_the_time_of_a_mask_search_is_told_apart(tmp_path):
    result = ran("fedspa", tmp_path / "run", rounds=3)

    assert result.cost["phase_seconds"].keys() == {"shared", "refresh"}
    assert all(float(row["refresh_seconds"]) > 0 for row in records.read_visits(tmp_path / "run"))
    assert ran("fedavg").cost["phase_seconds"].keys() == {"shared"}


def test_a_run_without_a_folder_has_the_same_costs(tmp_path):
    with_folder, without = ran("fedspa", tmp_path / "run").cost, ran("fedspa").cost

    times = {"seconds", "phase_seconds"}
    assert {key: with_folder[key] for key in with_folder.keys() - times} == {
        key: without[key] for key in without.keys() - times
    }


# Masks


def test_evaluated_rounds_tell_how_far_masks_are_apart(tmp_path):
    result = ran("fedspa", tmp_path / "run", rounds=4, evaluation={"every": 2})

    lines = records.read_rounds(tmp_path / "run")
    assert ["masks" in line for line in lines] == [False, True, False, True]
    found = lines[-1]["masks"]
    masks = {client: masks_in(result.store.get(client) or {}) for client in range(4)}
    assert (found["clients"], found["sample"]) == (4, [0, 1, 2, 3])
    distances = [[apart(masks[i], masks[j]) for j in range(4)] for i in range(4)]
    for row, wanted in zip(found["pairs"], distances, strict=True):
        assert row == pytest.approx(wanted, abs=5e-7)
    pairs = [distances[i][j] for i, j in itertools.combinations(range(4), 2)]
    assert found["mean"] == pytest.approx(sum(pairs) / 6)
    assert found["mean"] > 0
    assert 0.4 < found["density"] <= 0.5


def apart(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    total = sum(mask.numel() for mask in left.values())
    return sum(int((left[name] != right[name]).sum()) for name in left) / total


@pytest.mark.parametrize("quorum", [2, 5])
def test_of_fedmask_the_bits_that_clients_own_and_have_chosen_are_compared(quorum, tmp_path):
    """A model has zeros where it does not use the frozen weights. Five votes of four clients: no bit is voted on."""
    result = ran("fedmask", tmp_path / "run", rounds=3, method_options={"quorum": quorum}, evaluation={"every": 1})

    models = [result.personal_model(client).get_parameter("head.weight") for client in range(4)]
    masks = [{"head.weight": weight != 0} for weight in models]
    found = records.read_rounds(tmp_path / "run")[-1]["masks"]
    assert (found["clients"], found["sample"]) == (4, [0, 1, 2, 3])
    for mask, row in zip(masks, found["pairs"], strict=True):
        assert row == pytest.approx([apart(mask, other) for other in masks], abs=5e-7)
    assert found["density"] == pytest.approx(sum(int(mask["head.weight"].sum()) for mask in masks) / (4 * 20))
    assert 0 < found["density"] <= 0.4  # of five columns a half, rounded down, is two
    assert found["mean"] > 0
    assert all("masks" in line for line in records.read_rounds(tmp_path / "run"))


def test_fixed_masks_are_the_same_for_all_and_stay_at_distance_0(tmp_path):
    ran("fedspa", tmp_path / "run", method_options={"search": "rsm"})

    assert records.read_rounds(tmp_path / "run")[-1]["masks"]["mean"] == 0.0


def test_only_clients_that_were_visited_have_masks_to_compare(tmp_path):
    ran("fedspa", tmp_path / "run", rounds=1, cohort=1)

    found = records.read_rounds(tmp_path / "run")[-1]["masks"]
    assert (found["clients"], found["mean"], found["pairs"]) == (1, None, [[0.0]])


def test_methods_without_masks_tell_nothing_of_them(tmp_path):
    ran("fedavg", tmp_path / "run")

    assert all("masks" not in line for line in records.read_rounds(tmp_path / "run"))


# What capacities are about is asked for in every visit, and computed once


def counting(method: Method, calls: list[float]) -> Method:
    """The method with a list of the capacities that sizes were computed for."""
    rule = method.capacity
    assert rule is not None

    def sizes(network: Network, capacity: float) -> Mapping[str, int]:
        calls.append(capacity)
        return rule.sizes(network, capacity)

    return replace(method, capacity=replace(rule, sizes=sizes))


def test_slices_are_counted_once_for_all_visits_of_a_capacity():
    calls: list[float] = []
    network = mlp(shape=(INPUTS,), hidden=(5,), classes=CLASSES)

    run(counting(heterofl(width=0.4), calls), built().federation, network, rounds=3)

    assert calls == [0.4]


def test_what_a_capacity_is_about_is_kept_for_a_limited_number_of_capacities(monkeypatch):
    """Of four capacities in turn, two are kept at a time: each is computed anew in the second turn."""
    monkeypatch.setattr("plures.core.program.SIZES_KEPT", 2)
    calls: list[float] = []
    network = as_networks(mlp(shape=(INPUTS,), hidden=(5,), classes=CLASSES))
    program = make_program(counting(heterofl(), calls), network, built().federation, seed=0)
    program.capacity_of = [0.2, 0.4, 0.6, 1.0].__getitem__

    for client in [*range(4), *range(4)]:
        assert program.governed(client) == list(program.sizes(client))
        assert program.sizes(client)["body.1.bias"] == [1, 2, 3, 5][client]

    assert calls == [0.2, 0.4, 0.6, 1.0] * 2


# What cannot be counted


class OnlyInBatches(nn.Module):
    """Refuses a single example, by which networks are measured."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(INPUTS, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        if len(inputs) == 1:
            raise ValueError("one example is not enough")
        return self.head(inputs)


def test_a_network_that_cannot_be_measured_runs_and_its_operations_are_unknown(tmp_path):
    torch.manual_seed(0)
    result = run("fedavg", built().federation, OnlyInBatches(), rounds=2, out=tmp_path / "run")

    assert result.status == "finished"
    assert result.cost["not_counted"] == "ValueError: one example is not enough"
    unknown = ("flops", "dense_flops", "search_flops", "peak_bytes")
    assert [result.cost[name] for name in unknown] == [None] * 4
    assert result.cost["bytes_up"] > 0
    for line in records.read_rounds(tmp_path / "run"):
        assert [line[name] for name in unknown] == [None] * 4
    for row in records.read_visits(tmp_path / "run"):
        assert [row[name] for name in unknown] == [""] * 4
        assert int(row["bytes_up"]) > 0
