"""Planned costs against real ones, clients that differ, codes of the wire, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plures import RunResult, make_experiment, run_experiment
from plures.core.errors import InvalidConfig, InvalidModel
from plures.data import SOURCES, DataSet, Source, from_arrays
from plures.recipes import PlannedCost, costing, planned_cost
from plures.report import records
from tests.recipes.helpers import table

COUNTS = ("values_down", "values_up", "flops", "dense_flops", "search_flops")
METHODS = ("fedavg", "fedspa", "ditto", "pflego", "apfl")


def both(**changes: Any) -> tuple[PlannedCost, RunResult]:
    """What an experiment would cost, and the same experiment run."""
    experiment = make_experiment(table(**changes))
    return planned_cost(experiment), run_experiment(experiment)


def stood_in(method: str = "fedavg", **changes: Any) -> dict[str, Any]:
    """An experiment without data."""
    data = {"clients": 4, "sizes": 12, "shape": [4], "classes": 4} | changes.pop("data", {})
    model = {"hidden": [5]} | changes.pop("model", {})
    return {"method": method, "rounds": 2, "data": data, "model": model} | changes


def plan(method: str = "fedavg", **changes: Any) -> PlannedCost:
    return planned_cost(make_experiment(stood_in(method, **changes)))


def refused(method: str = "fedavg", **changes: Any) -> list[str]:
    with pytest.raises(InvalidConfig) as found:
        plan(method, **changes)
    return found.value.problems


# Against real runs


@pytest.mark.parametrize("method", [*METHODS, "heterofl", "subsampling", "fedmask"])
def test_values_operations_and_memory_of_a_real_run_are_the_planned_ones(method, tmp_path):
    changes = {"rounds": 2, "cohort": 3, "data": {"source": "digits", "clients": 5}, "model": {"hidden": [16]}}
    experiment = make_experiment(table(method, **changes))

    planned, real = planned_cost(experiment), run_experiment(experiment, out=tmp_path / "run")

    rows = list(records.read_visits(tmp_path / "run"))
    for name in COUNTS:
        # a model of fedmask may have fewer weights than its capacity: bits that are voted out
        wanted = pytest.approx(planned.total[name], rel=0.01) if method == "fedmask" else planned.total[name]
        if method == "fedspa" and name in ("flops", "search_flops"):  # the last of two rounds has nothing to search for
            wanted -= sum(int(row["search_flops"]) for row in rows if row["round"] == "1")
        assert real.cost[name] == sum(int(row[name]) for row in rows) == wanted
    assert real.cost["peak_bytes"] == max(int(row["peak_bytes"]) for row in rows) == planned.peak_bytes
    assert planned.cohort == 3


@pytest.mark.parametrize("method", METHODS)
def test_bytes_of_a_real_run_are_at_most_the_planned_ones(method):
    """Many pixels of digits are 0 on all examples of a client: the change of their weights is 0, and is not sent."""
    planned, real = both(method=method, data={"source": "digits", "clients": 5})

    assert real.cost["bytes_down"] == planned.total["bytes_down"]
    assert 0.6 * planned.total["bytes_up"] < real.cost["bytes_up"] < planned.total["bytes_up"]


def without_dead_inputs() -> DataSet:
    draws = np.random.default_rng(3)
    return DataSet(name="noise", examples=from_arrays(draws.normal(size=(600, 12)).astype("f4"), np.arange(600) % 4))


@pytest.mark.parametrize("method", [*METHODS, "scaffold", "heterofl", "subsampling"])
def test_bytes_of_a_real_run_are_the_planned_ones_where_every_weight_moves(method, monkeypatch):
    """Scaffold's first download, and the masks of fedspa's last round, are less than planned: one of 16 rounds."""
    monkeypatch.setitem(SOURCES, "noise", Source(name="noise", about="", files=(), load=without_dead_inputs))

    planned, real = both(method=method, rounds=16, data={"source": "noise"}, model={"hidden": [40]})

    slack = 0.04 if method == "scaffold" else 0.02
    for name in ("bytes_down", "bytes_up"):
        assert real.cost[name] == pytest.approx(planned.total[name], rel=slack)


def test_a_first_visit_that_does_more_is_counted_once_for_each_client():
    """FedMask trains its scores for an epoch more in a client's first visit, to find out what it keeps."""
    planned, real = both(method="fedmask", rounds=3, cohort=2)

    visited = {client for line in real.history for client in line["cohort"]}
    assert planned.total["dense_flops"] == real.cost["dense_flops"]
    # a forward pass takes 2 * (4 * 5 + 5 * 4) + 9 = 89 operations
    examples = sum(real.federation.num_examples(client) for line in real.history for client in line["cohort"])
    examples += sum(real.federation.num_examples(client) for client in visited)
    assert planned.total["dense_flops"] == 3 * 89 * examples


# Clients that differ


def test_each_tier_of_capacities_costs_what_it_costs_alone():
    """One of four clients has the whole model, and every client takes part in both rounds."""
    tiers = plan("fedspa", capacity={"density": {"tiers": [[0.25, 1.0], [0.75, 0.4]]}}).total
    full, small = (plan("fedspa", capacity={"density": density}).total for density in (1.0, 0.4))

    for name in ("values_down", "values_up", "flops"):
        assert tiers[name] == pytest.approx((full[name] + 3 * small[name]) / 4, rel=1e-12)
        assert small[name] < full[name]


def test_planned_costs_of_capacities_are_those_of_a_real_run():
    tiers = {"density": {"tiers": [[0.25, 1.0], [0.75, 0.4]]}}
    planned, real = both(method="fedspa", cohort=2, rounds=4, capacity=tiers)

    for name in COUNTS:
        saved = 0.0
        if name in ("flops", "search_flops"):  # in the last round nothing is searched for, and clients are of one size
            saved = real.history[-2]["search_flops"]
        assert real.cost[name] == planned.total[name] - saved
    assert real.cost["peak_bytes"] == planned.peak_bytes


def test_clients_of_unequal_sizes_are_counted_each():
    """Forward passes of one example take 2 * (4 * 5 + 5 * 4) + 9 = 89 operations; each example is seen twice."""
    found = plan(data={"clients": 3, "sizes": [3, 50, 7]})

    assert found.clients == 3
    assert found.total["flops"] == 3 * 89 * 2 * (3 + 50 + 7)
    assert found.notes == []


def test_sizes_alone_say_how_many_clients_there_are():
    table = stood_in(data={"sizes": [3, 5]})
    del table["data"]["clients"]

    assert planned_cost(make_experiment(table)).clients == 2


def test_more_kinds_of_clients_than_can_be_looked_at_are_estimated_and_told(monkeypatch):
    monkeypatch.setattr(costing, "KINDS", 4)
    sizes = list(range(11, 21))
    exact = 3 * 89 * 2 * sum(sizes)

    found = plan(data={"clients": 10, "sizes": sizes})

    assert found.notes == ["Estimated from 4 of 10 clients, for they all differ."]
    assert found.total["flops"] == pytest.approx(exact, rel=0.05)
    assert plan(data={"clients": 10, "sizes": [11, 12] * 5}).notes == []


def test_cohorts_are_those_that_the_run_will_draw():
    changes = {"cohort": 0.5, "rounds": 5, "seed": 3}
    planned, real = both(data={"partition": "dirichlet", "alpha": 0.5, "min_examples": 3}, **changes)

    assert planned.total["flops"] == real.cost["flops"]
    assert planned.cohort == 2


def test_newcomers_take_no_part():
    assert plan(data={"newcomers": 0.5}).clients == 2


# Codes of the wire


@pytest.mark.parametrize(("code", "bytes_per_value"), [("float16", 2), ("bfloat16", 2), ("int8", 1)])
def test_codes_of_the_wire_are_counted(code, bytes_per_value):
    exact, coded = (plan(model={"hidden": [500]}, wire={"upload": upload}).visit for upload in ("exact", code))

    assert coded["bytes_down"] == exact["bytes_down"]
    assert coded["bytes_up"] / exact["bytes_up"] == pytest.approx(bytes_per_value / 4, abs=0.02)
    assert coded["paper_bytes"] == exact["paper_bytes"]


# What is refused


def test_sizes_without_shape_or_classes_are_refused_with_an_example():
    for missing in ("shape", "classes"):
        table = stood_in()
        del table["data"][missing]
        with pytest.raises(InvalidConfig, match=r"sizes = 500, shape = \[3, 32, 32\], classes = 10"):
            planned_cost(make_experiment(table))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"sizes": 0}, "give whole numbers above 0"),
        ({"sizes": -5}, "give whole numbers above 0"),
        ({"clients": 2, "sizes": [5, 0]}, "sizes = [5, 0]"),
        ({"sizes": []}, "sizes = []"),
        ({"shape": [0]}, "shape = [0]"),
        ({"classes": 0}, "classes = 0"),
        ({"sizes": [5, 5, 5]}, "clients = 4, but 3 sizes"),
        ({"sizes": 5.5}, "data.sizes"),
        ({"sizes": "many"}, "data.sizes"),
        ({"sizes": True}, "data.sizes"),
        ({"shape": 4}, "data.shape"),
        ({"classes": 2.5}, "data.classes"),
    ],
)
def test_data_that_cannot_be_stood_in_for_are_one_clear_problem(data, says):
    (problem,) = refused(data=data)

    assert says in problem


@pytest.mark.parametrize("key", ["shape", "classes"])
def test_shape_and_classes_belong_to_sizes(key):
    with pytest.raises(InvalidConfig, match="belong to sizes"):
        planned_cost(make_experiment(table(data={key: {"shape": [4], "classes": 4}[key]})))


def test_a_run_needs_data():
    with pytest.raises(InvalidConfig, match=r"stands in for data that are not at hand.*name a source"):
        run_experiment(make_experiment(stood_in()))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cohort": 9}, "a cohort of 9 clients cannot be drawn from 4"),
        ({"wire": {"upload": "int4"}}, "wire.upload is 'int4'"),
        ({"method_options": {"rate": 3}}, "fedavg has no option 'rate'"),
        ({"capacity": {"density": 0.5}}, "fedavg gives every client the whole model"),
    ],
)
def test_what_is_wrong_with_the_run_is_told_here_too(changes, says):
    (problem,) = refused(**changes)

    assert says in problem


def test_a_network_that_does_not_take_the_inputs_is_told_here_too():
    table = stood_in(data={"shape": [7]}) | {"model": {"name": "tests.recipes.helpers:asks_for_nothing"}}

    with pytest.raises(InvalidModel, match=r"does not take client 0's inputs of shape \(7,\)"):
        planned_cost(make_experiment(table))


def test_other_stages_of_a_pipeline_are_said_to_be_left_out():
    (note,) = plan(pipeline={"tune": {"part": "all"}}).notes

    assert "pipeline" in note
