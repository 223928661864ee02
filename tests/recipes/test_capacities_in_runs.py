"""Capacities in runs: kept to in every round, recorded, and repeated bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

from plures import load_experiment, make_experiment, run, run_experiment
from plures.data import digits_federation
from plures.local.masks import masks_in
from plures.methods import fedspa
from plures.models import mlp
from plures.recipes.capacities import affordable
from plures.report import records
from tests.recipes.helpers import ran

DIGITS = {"data": {"source": "digits", "clients": 5}, "model": {"hidden": [16]}}
FORMS: dict[str, dict[str, Any]] = {
    "number": {"density": 0.3},
    "list": {"density": [0.1, 0.2, 0.3, 0.4, 1.0]},
    "tiers": {"tiers": [[0.2, 1.0], [0.8, 0.5]]},
    "choice": {"density": {"choice": [0.5, 0.1]}},
    "uniform": {"flops": {"uniform": [0.2, 0.9]}},
    "lognormal": {"bytes": {"lognormal": [2000, 0.2]}},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_no_client_uses_or_uploads_more_than_it_can_afford_and_the_records_show_it(form, tmp_path):
    run = ran("fedspa", tmp_path / "run", capacity=form, **DIGITS)

    wanted = affordable(run.program, form, 5)
    size = sum(value.numel() for value in run.server.shared.values())
    for client in range(5):
        masks = masks_in(run.store.get(client) or {})
        held = sum(int(mask.sum()) for mask in masks.values())
        assert 0.97 * wanted(client) * size - 4 < held <= wanted(client) * size  # each of 4 tensors is rounded down
    for row in records.read_visits(tmp_path / "run"):
        capacity = wanted(int(row["client"]))
        assert float(row["capacity"]) == capacity
        assert float(row["density"]) <= capacity
        assert int(row["values_up"]) <= capacity * size
    assert all(0.97 < line["used"] <= 1 for line in run.history)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_resolved_file_repeats_the_run_bit_for_bit(form, tmp_path):
    first = ran("fedspa", tmp_path / "run", capacity=form, **DIGITS)

    again = run_experiment(load_experiment(tmp_path / "run" / records.EXPERIMENT))

    assert again.fingerprint == first.fingerprint
    assert again.metrics == first.metrics


@pytest.mark.parametrize(("method", "unit"), [("fedspa", "density"), ("heterofl", "width"), ("fedmask", "density")])
def test_every_method_with_capacities_keeps_to_those_of_its_tiers(method, unit, tmp_path):
    """Two of five clients can afford the whole model; core checks each visit, and the records say the same."""
    ran(method, tmp_path / "run", capacity={unit: {"tiers": [[0.4, 1.0], [0.6, 0.25]]}}, **DIGITS)

    densities: dict[float, set[float]] = {}
    for row in records.read_visits(tmp_path / "run"):
        densities.setdefault(float(row["capacity"]), set()).add(float(row["density"]))
    assert densities.keys() == {1.0, 0.25}
    assert max(densities[0.25]) < min(densities[1.0])


def test_python_and_a_file_give_the_same_run():
    capacity = {"flops": {"choice": [0.5, 0.25]}}
    options: dict[str, Any] = {"rounds": 1, "seed": 3}

    in_python = run("fedspa", digits_federation(num_clients=5), mlp, capacity=capacity, **options)
    in_a_file = run_experiment(
        make_experiment({"method": "fedspa", "data": {"clients": 5}, "capacity": capacity} | options)
    )

    assert in_python.fingerprint == in_a_file.fingerprint


def test_a_capacity_for_everybody_is_the_methods_own_option():
    federation = digits_federation(num_clients=5)

    option = run(fedspa(density=0.3), federation, mlp, rounds=1)
    capacity = run(fedspa(density=0.9), federation, mlp, rounds=1, capacity=0.3)

    assert capacity.fingerprint == option.fingerprint


def test_operations_of_a_client_stay_below_its_limit(tmp_path):
    """A forward pass of the dense network of 64, 16 and 10 units takes 2 * 1,184 + 26 = 2,394 operations."""
    limit = 1000
    dense = 2 * (64 * 16 + 16 * 10) + 16 + 10

    ran("fedspa", tmp_path / "run", capacity={"flops": limit}, **DIGITS)

    for row in records.read_visits(tmp_path / "run"):
        examples = int(row["dense_flops"]) // (3 * dense)
        forward = (int(row["flops"]) - int(row["search_flops"])) / (3 * examples)
        assert 0.97 * limit < forward <= limit
