"""Capacities: what each client can afford, from every form and in every unit, and that its model never costs more."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from plures.core.method import Method
from plures.core.program import Program
from plures.methods import METHODS, fedspa, heterofl
from plures.models import as_networks, cnn_o, mlp, resnet8_gn
from plures.parts.profile import Profile, profile
from plures.recipes.capacities import UNITS, affordable, read_capacities
from plures.recipes.experiment import Data
from plures.recipes.federations import stand_in
from plures.recipes.message_bounds import largest_message
from plures.recipes.running import make_program

# Forms


def values(form: Any, clients: int = 20, seed: int = 0) -> list[float]:
    """What each client gets, in the unit that the form is given in."""
    read = read_capacities(form, clients, seed, "density")
    return [read.of(client) for client in range(clients)]


def test_a_number_is_for_everybody():
    assert values(0.3) == [0.3] * 20
    assert values(1) == [1.0] * 20


def test_a_list_gives_each_client_its_own():
    assert values([0.1, 0.5, 1], clients=3) == [0.1, 0.5, 1.0]
    assert values((0.1, 0.5, 1), clients=3) == [0.1, 0.5, 1.0]


def test_tiers_give_exact_numbers_of_clients():
    """10 % of 20 clients are 2."""
    assert Counter(values({"tiers": [[0.1, 1.0], [0.9, 0.5]]})) == {1.0: 2, 0.5: 18}


@pytest.mark.parametrize(
    ("shares", "clients", "counts"),
    [
        ([0.35, 0.65], 5, [2, 3]),  # 1.75
        ([0.29, 0.71], 100, [29, 71]),  # 29, though in floating point 28.999999999999996
        ([0.3, 0.3, 0.4], 12, [4, 3, 5]),  # ends at 3.6 and 7.2, so at 4 and 7
    ],
)
def test_tiers_end_at_the_nearest_client(shares, clients, counts):
    tiers = [[share, (number + 1) / 10] for number, share in enumerate(shares)]

    found = Counter(values({"tiers": tiers}, clients))

    assert [found[value] for _, value in tiers] == counts


def test_tiers_are_dealt_once_for_all_by_the_seed():
    tiers = {"tiers": [[0.5, 1.0], [0.5, 0.5]]}

    assert values(tiers) == values(tiers)
    assert len({tuple(values(tiers, seed=seed)) for seed in range(5)}) == 5


@given(
    shares=st.lists(st.integers(0, 50), min_size=1, max_size=5).filter(any),
    clients=st.integers(1, 60),
)
def test_tiers_leave_nobody_out_and_miss_their_shares_by_less_than_one_client(shares, clients):
    total = sum(shares)
    tiers = [[share / total, (number + 1) / 10] for number, share in enumerate(shares)]

    found = Counter(values({"tiers": tiers}, clients))

    assert sum(found.values()) == clients
    for share, value in tiers:
        assert abs(found[value] - share * clients) <= 1 + 1e-9  # each of its two ends is rounded by at most a half


def test_a_choice_gives_each_client_one_of_the_values_with_equal_chances():
    found = Counter(values({"choice": [0.5, 0.1]}, clients=2000))

    assert found.keys() == {0.5, 0.1}
    assert abs(found[0.5] - 1000) < 112  # 5 standard deviations of sqrt(2000 / 4)


def test_a_uniform_draw_stays_within_its_bounds_and_fills_them():
    found = values({"uniform": [0.2, 0.6]}, clients=2000)

    assert 0.2 <= min(found) < 0.21
    assert 0.59 < max(found) <= 0.6
    assert abs(statistics.fmean(found) - 0.4) < 0.013  # 5 standard deviations of 0.4 / sqrt(12 * 2000)


def test_a_log_normal_draw_has_its_median_and_spread():
    logs = [math.log(value / 100) for value in values({"flops": {"lognormal": [100, 0.5]}}, clients=2000)]

    assert abs(statistics.median(logs)) < 0.07  # 5 standard deviations of 1.25 * 0.5 / sqrt(2000)
    assert abs(statistics.stdev(logs) - 0.5) < 0.04  # and of 0.5 / sqrt(2 * 2000)
    assert max(map(abs, logs)) <= 1.5 + 1e-9  # three spreads


def test_log_normal_shares_end_at_one():
    found = values({"lognormal": [0.8, 1.0]}, clients=200)

    assert max(found) == 1.0
    assert Counter(found)[1.0] > 50  # the share above is P(z > log(1 / 0.8)) = 0.41
    assert min(found) >= 0.8 * math.exp(-3)


@pytest.mark.parametrize("form", [{"choice": [0.5, 0.1]}, {"uniform": [0.1, 0.9]}, {"lognormal": [0.3, 0.5]}])
def test_a_draw_depends_on_seed_and_client_alone(form):
    assert values(form, clients=20) == values(form, clients=500)[:20]
    assert values(form) != values(form, seed=1)


def test_a_form_alone_is_in_the_unit_of_the_method():
    for form in (0.5, [0.5, 0.1], {"choice": [0.5, 0.1]}):
        alone, named = (read_capacities(given, 2, 0, "width") for given in (form, {"width": form}))
        assert alone.unit == named.unit == "width"
        assert [alone.of(0), alone.of(1)] == [named.of(0), named.of(1)]


def test_units_are_those_of_methods_and_two_that_any_method_takes():
    assert set(UNITS) == {"density", "width", "flops", "bytes"}
    of_methods = {info.make().capacity.unit for info in METHODS.values() if info.make().capacity is not None}
    assert of_methods == {"density", "width"}


# Units: the largest model within a limit


MODELS: dict[str, tuple[Callable[[], nn.Module], list[int]]] = {
    "mlp": (lambda: mlp(shape=(20,), hidden=(30, 10), classes=4), [20]),
    "cnn": (lambda: cnn_o(shape=(1, 28, 28), classes=4), [1, 28, 28]),
    "resnet": (lambda: resnet8_gn(shape=(3, 8, 8), classes=4), [3, 8, 8]),
}
SPARSE: dict[str, Callable[[], Method]] = {"fedspa": fedspa, "heterofl": heterofl}


@cache
def program_of(method: str, model: str) -> Program:
    make, shape = MODELS[model]
    federation = stand_in(Data(sizes=4, shape=shape, classes=4, clients=3))
    return make_program(SPARSE[method](), as_networks(make), federation, seed=0)


@cache
def profile_of(program: Program) -> Profile:
    network = program.binding(0).network
    return profile(network.module, network.example)


def cost_of(program: Program, unit: str, capacity: float) -> float:
    """FLOPs of an example, or bytes of the largest message, of the model that a client of that capacity has."""
    network, rule = program.binding(0).network, program.method.capacity
    assert rule is not None
    sizes = rule.sizes(network, capacity)
    if unit == "bytes":
        whole = {name: value.numel() for name, value in network.params.items()}
        return largest_message(program.binding(0))(whole | dict(sizes))
    return profile_of(program).flops(sizes)


@pytest.mark.parametrize("unit", ["flops", "bytes"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", SPARSE)
@given(share=st.floats(0.15, 0.98), absolute=st.booleans())
@settings(max_examples=5, deadline=None)
def test_the_model_found_costs_no_more_than_the_limit_and_one_percent_more_would(method, model, unit, share, absolute):
    program = program_of(method, model)
    limit = share * cost_of(program, unit, 1.0)

    capacity = affordable(program, {unit: limit if absolute else share}, 3)(1)

    assert cost_of(program, unit, capacity) <= limit
    assert cost_of(program, unit, min(1.0, 1.01 * capacity)) > limit


@pytest.mark.parametrize("unit", ["flops", "bytes"])
@pytest.mark.parametrize("given", [1, 1.0, 10**12], ids=str)
def test_a_limit_that_the_whole_model_meets_gives_the_whole_model(unit, given):
    assert affordable(program_of("fedspa", "mlp"), {unit: given}, 3)(0) == 1.0


def test_a_value_in_the_methods_own_unit_is_taken_as_it_is():
    assert [affordable(program_of("fedspa", "mlp"), [0.1, 0.25, 1], 3)(client) for client in range(3)] == [0.1, 0.25, 1]
    assert affordable(program_of("heterofl", "mlp"), {"width": 0.5}, 3)(2) == 0.5
