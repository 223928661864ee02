"""Planned costs of the FedSpa paper's experiments: the IID columns of its tables, within 0.1 of what is printed."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from plures import make_experiment
from plures.recipes import PlannedCost, planned_cost

# The FedSpa paper: 100 clients, 10 in a round, 5 epochs, batches of 128. EMNIST letters have 124,800 training examples
# of 26 classes, CIFAR 50,000; the printed gigabytes need 400 rounds of the former and 1,000 of the latter.
SETTINGS: dict[str, dict[str, Any]] = {
    "lenet5": {"rounds": 400, "data": {"sizes": 1248, "shape": [1, 28, 28], "classes": 26}},
    "vgg11_gn": {"rounds": 1000, "data": {"sizes": 500, "shape": [3, 32, 32], "classes": 10}},
    "resnet18_gn": {"rounds": 1000, "data": {"sizes": 500, "shape": [3, 32, 32], "classes": 100}},
}
EPOCHS = {"epochs": 5, "batch": 128}


@cache
def planned(method: str, model: str, options: str = "{}") -> PlannedCost:
    """With the method's options as JSON, so that they can be remembered."""
    table = SETTINGS[model]
    return planned_cost(
        make_experiment(
            {
                "method": method,
                "rounds": table["rounds"],
                "cohort": 10,
                "data": {"clients": 100, **table["data"]},
                "model": {"name": model},
                "method_options": {"budget": EPOCHS} | json.loads(options),
            }
        )
    )


def gigabytes(cost: PlannedCost) -> float:
    return cost.total["paper_bytes"] / 1e9


def near(printed: float) -> Any:
    return pytest.approx(printed, abs=0.1)


RSM = json.dumps({"search": "rsm"})
TWO_AND_THREE = json.dumps({"budget": EPOCHS | {"epochs": 2}, "personal_budget": EPOCHS | {"epochs": 3}})


@pytest.mark.parametrize(
    ("method", "model", "printed_gigabytes", "printed_flops"),
    [
        ("fedavg", "lenet5", 14.1, 3.5),
        ("fedspa", "lenet5", 7.0, 2.0),
        ("subsampling", "lenet5", 10.5, 3.5),
        ("fedavg", "vgg11_gn", 738.5, 229.3),
        ("fedspa", "vgg11_gn", 369.2, 172.9),
        ("subsampling", "vgg11_gn", 553.9, 229.3),
        ("fedavg", "resnet18_gn", 897.6, 833.2),
        ("fedspa", "resnet18_gn", 448.8, 705.1),
        ("subsampling", "resnet18_gn", 673.2, 833.2),
    ],
)
def test_table_1_gigabytes_and_operations_in_units_of_1e14(method, model, printed_gigabytes, printed_flops):
    found = planned(method, model)

    assert gigabytes(found) == near(printed_gigabytes)
    assert found.total["flops"] / 1e14 == near(printed_flops)


@pytest.mark.parametrize(
    ("model", "printed_gigabytes", "printed_flops"),
    [("lenet5", 14.1, 3.5), ("vgg11_gn", 738.5, 229.3), ("resnet18_gn", 897.6, 833.2)],
)
def test_ditto_with_two_and_three_epochs_has_the_columns_of_fedavg(model, printed_gigabytes, printed_flops):
    found = planned("ditto", model, TWO_AND_THREE)

    assert gigabytes(found) == near(printed_gigabytes)
    assert found.total["flops"] / 1e14 == near(printed_flops)


def test_a_twin_takes_memory_but_no_more_bytes_on_the_way():
    ditto, fedavg = planned("ditto", "lenet5", TWO_AND_THREE), planned("fedavg", "lenet5")

    assert ditto.total["paper_bytes"] == fedavg.total["paper_bytes"]
    assert ditto.total["flops"] == fedavg.total["flops"]
    assert ditto.peak_bytes - fedavg.peak_bytes == 4 * 439_096


def test_rsm_has_the_operations_of_dst_with_a_search_that_it_does_not_need():
    """Table 1 prints the same 2.0 for both: dense operations of one batch of 128 are in it."""
    rsm, dst = planned("fedspa", "lenet5", RSM), planned("fedspa", "lenet5")

    assert rsm.total["search_flops"] == 0
    assert rsm.total["flops"] == dst.total["flops"] - dst.total["search_flops"]
    assert rsm.total["flops_with_search"] == dst.total["flops"] == dst.total["flops_with_search"]
    assert gigabytes(rsm) == gigabytes(dst)


@pytest.mark.parametrize(
    ("model", "printed_gigabytes", "printed_flops"),
    [("lenet5", 7.0, 2.0), ("vgg11_gn", 369.2, 172.9), ("resnet18_gn", 448.8, 705.1)],
)
def test_rsm_has_the_printed_columns_of_table_1_with_the_search(model, printed_gigabytes, printed_flops):
    found = planned("fedspa", model, RSM)

    assert gigabytes(found) == near(printed_gigabytes)
    assert found.total["flops_with_search"] / 1e14 == near(printed_flops)


def test_rsm_on_vgg_has_the_printed_operations_with_the_search_only():
    """The search: 3 * 128 examples of 305.7 million operations, in each of 10,000 visits, are 11.7e14."""
    found = planned("fedspa", "vgg11_gn", RSM).total

    assert found["flops_with_search"] / 1e14 == near(172.9)
    assert (found["flops_with_search"] - found["flops"]) / 1e14 == near(11.7)


# RSM with the search is DST to the last operation (above), and is planned faster.


@pytest.mark.parametrize(
    ("sparsity", "printed_gigabytes", "printed_flops"),
    [(0.2, 718.1, 8.2), (0.4, 538.6, 7.6), (0.5, 448.8, 7.1), (0.6, 359.0, 6.5), (0.8, 179.5, 4.6)],
)
def test_table_3_sweep_of_sparsities_with_operations_in_units_of_1e16(sparsity, printed_gigabytes, printed_flops):
    options = {"density": round(1 - sparsity, 1), "search": "rsm"}

    found = planned("fedspa", "resnet18_gn", json.dumps(options))

    assert gigabytes(found) == near(printed_gigabytes)
    assert found.total["flops_with_search"] / 1e16 == near(printed_flops)


@pytest.mark.parametrize(("densities", "printed_flops"), [("erk", 7.1), ("uniform", 4.6)])
def test_table_4_densities_by_erk_are_dearer_than_uniform_ones(densities, printed_flops):
    options = {"densities": densities, "search": "rsm"}

    found = planned("fedspa", "resnet18_gn", json.dumps(options))

    assert gigabytes(found) == near(448.8)
    assert found.total["flops_with_search"] / 1e16 == near(printed_flops)


def test_local_training_sends_nothing_and_computes_as_much_as_fedavg():
    local, fedavg = planned("local", "lenet5"), planned("fedavg", "lenet5")

    assert (local.total["paper_bytes"], local.total["encoded_bytes"]) == (0, 0)
    assert local.total["flops"] == fedavg.total["flops"]


def test_a_visit_is_the_mean_of_all_and_the_network_is_counted():
    found = planned("fedavg", "lenet5")

    assert (found.method, found.rounds, found.clients, found.cohort) == ("fedavg", 400, 100, 10)
    assert found.parameters == 439_096
    assert found.visit["values_up"] == found.visit["values_down"] == 439_096
    assert found.visit["flops"] == found.total["flops"] / 4000
    assert found.notes == []


def test_encoded_bytes_are_papers_bytes_and_a_little_for_names_and_masks():
    """Dense: 8 tensors with names and shapes, and a frame. Half held: at most a bit for each of 439,096 values, and as
    many for the next mask on the way up; tensors that are dense need none."""
    dense, sparse = planned("fedavg", "lenet5").visit, planned("fedspa", "lenet5").visit

    assert 0 < dense["encoded_bytes"] - dense["paper_bytes"] < 1000
    assert sparse["bytes_down"] - 4 * sparse["values_down"] == pytest.approx(439_096 / 8, rel=0.04)
    assert sparse["bytes_up"] - 4 * sparse["values_up"] == pytest.approx(2 * 439_096 / 8, rel=0.04)
