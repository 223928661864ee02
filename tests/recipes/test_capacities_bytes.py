"""Capacities in bytes: no message of a client takes more, in either direction and in any round."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from plures.core.errors import InvalidConfig
from plures.core.method import Method
from plures.core.program import Program
from plures.core.types import Params
from plures.core.wire import Message, Parcel
from plures.methods import fedspa, heterofl, pfedgate
from plures.models import as_networks, cnn_o, mlp
from plures.recipes.capacities import affordable
from plures.recipes.experiment import Data
from plures.recipes.federations import stand_in
from plures.recipes.message_bounds import largest_message, most_bytes, position_bytes
from plures.recipes.running import make_program
from plures.report import records
from plures.wire import size
from plures.wire.positions import smallest_code
from tests.recipes.helpers import problem_of, ran

DIGITS: dict[str, Any] = {"data": {"source": "digits", "clients": 5}, "model": {"hidden": [16]}, "rounds": 4}
"""64, 16 and 10 units: 1,210 parameters, 4,840 bytes of values."""


def visits(folder: Path, method: str, limit: Any, **changes: Any) -> list[dict[str, str]]:
    """What every visit took, of a run with a capacity in bytes."""
    ran(method, folder / "run", **{**DIGITS, **changes}, capacity={"bytes": limit})
    return list(records.read_visits(folder / "run"))


def largest(rows: list[dict[str, str]]) -> int:
    return max(int(row[way]) for row in rows for way in ("bytes_up", "bytes_down"))


# Runs


LIMITED: dict[str, tuple[str, dict[str, Any]]] = {
    "fedspa": ("fedspa", {}),
    "uniform": ("fedspa", {"method_options": {"densities": "uniform", "same_masks": False}}),
    "random": ("fedspa", {"method_options": {"regrow": "random", "prune_rate": 1.0}}),
    "rsm": ("fedspa", {"method_options": {"search": "rsm"}}),
    "statistics": (
        "fedspa",
        {"model": {"hidden": [16], "batch_norm": True}, "method_options": {"buffers": "shared"}},
    ),
    "int8": ("fedspa", {"wire": {"upload": "int8", "download": "float16"}}),
    "heterofl": ("heterofl", {}),
    "all logits": ("heterofl", {"method_options": {"mask_logits": False}}),
}


@pytest.mark.parametrize("limit", [900, 3000, 4950, 0.95])
@pytest.mark.parametrize(("method", "changes"), LIMITED.values(), ids=LIMITED)
def test_no_message_takes_more_bytes_than_the_capacity_in_any_round(method, changes, limit, tmp_path):
    rows = visits(tmp_path, method, limit, **changes)

    assert len(rows) == 4 * 5
    assert largest(rows) <= (limit if limit > 1 else limit * dense_message(changes))


def dense_message(changes: dict[str, Any]) -> float:
    """What a client sends of the whole model: all values, names and shapes."""
    normed = changes.get("model", {}).get("batch_norm", False)
    network = mlp(shape=(64,), hidden=(16,), classes=10, batch_norm=normed)
    sent = {name: torch.ones_like(value) for name, value in network.state_dict().items()}
    statistics = {name: sent.pop(name) for name, _ in network.named_buffers()}
    return size(Message(Parcel(sent, {name: value.bool() for name, value in sent.items()}), statistics))


def test_a_capacity_is_kept_and_made_use_of(tmp_path):
    """Values alone may take 10,000 bytes: with positions and masks that would be 11,138."""
    rows = visits(tmp_path, "fedspa", 10_000, model={"hidden": [64]})

    assert 9_500 < largest(rows) <= 10_000


def test_each_client_keeps_to_its_own_limit(tmp_path):
    limits = [900, 1500, 2500, 4000, 9000]

    rows = visits(tmp_path, "fedspa", limits)

    for client, limit in enumerate(limits):
        sent = largest([row for row in rows if int(row["client"]) == client])
        assert 0.85 * min(limit, 4_840) < sent <= limit


@pytest.mark.parametrize("limit", [4_400, 4_600, 4_800])
def test_of_fedmask_the_values_of_the_model_are_more_than_its_messages(limit, tmp_path):
    """The frozen layer has 64 * 16 + 16 values and the output layer 10 biases; each column of its weights has 10."""
    rows = visits(tmp_path, "fedmask", limit)

    columns = {float(row["capacity"]) * 16 for row in rows}
    assert {math.floor(count) for count in columns} == {(limit - 4 * (64 * 16 + 16 + 10)) // (4 * 10)}
    assert largest(rows) < 200 < limit


def test_of_pfedgate_the_model_is_limited_but_not_what_its_blocks_take_on_the_way(tmp_path):
    """A download is whole, 4,840 bytes of values; of the gate, which is not sent, the values count too."""
    gated = program_of("pfedgate", "digits")
    gate = 4 * sum(value.numel() for name, value in gated.binding(0).network.params.items() if "gate." in name)
    limit = gate + 3_000

    run = ran("pfedgate", tmp_path / "run", **DIGITS, capacity={"bytes": limit})

    assert limit - 4 < 4 * sum(run.program.sizes(0).values()) <= limit
    assert all(line["used"] <= 1 for line in run.history)  # of what it is allowed, in every round
    assert min(int(row["bytes_down"]) for row in records.read_visits(tmp_path / "run")) > 4_840


def test_where_uploads_are_not_limited_values_alone_count():
    """FedSpa as if it were such a method, with 100 of the 160 weights of the output layer."""
    program = program_of("fedspa", "digits")
    rule = program.method.capacity
    assert rule is not None

    found = most_bytes(replace(rule, limits_uploads=False), program.binding(0))
    sizes = whole_sizes(program) | {"head.weight": 100}

    assert found(sizes) == 4 * (1_210 - 60)
    assert found(sizes) < most_bytes(rule, program.binding(0))(sizes)


@pytest.mark.parametrize("method", ["fedspa", "heterofl"])
def test_the_whole_model_is_had_for_what_its_message_takes_and_not_for_a_byte_less(method):
    program = program_of(method, "mlp")
    dense = largest_message(program.binding(0))(program.sizes(0) | whole_sizes(program))

    assert affordable(program, {"bytes": dense}, 3)(0) == 1.0
    assert affordable(program, {"bytes": dense - 1}, 3)(0) < 1.0


def test_a_capacity_that_values_fit_but_no_message_is_one_clear_error_before_round_1():
    """Four values, one for each tensor, take 16 bytes; their names and shapes, and those of masks, take far more."""
    for limit in (16, 100):
        error = problem_of("fedspa", **DIGITS, capacity={"bytes": limit})

        assert isinstance(error, InvalidConfig)
        assert error.problems == [f"capacity.bytes = {limit}: even the smallest model needs more."]


# The bound


@given(st.integers(1, 100_000), st.floats(0, 1), st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_positions_take_no_more_than_is_said(numel, share, seed):
    draws = np.random.default_rng(seed)
    mask = np.zeros(numel, np.bool_)
    mask[draws.permutation(numel)[: int(share * numel)]] = True

    _, needed = smallest_code(mask)

    assert needed <= position_bytes(numel, int(mask.sum()))


@pytest.mark.parametrize("gap", [0, 1, 127, 128, 129, 16_383, 16_384, 16_385])
def test_positions_with_equal_gaps_take_no_more_than_is_said(gap):
    """The longest codes come of gaps just at a power of 128."""
    mask = np.zeros(40 * (gap + 1) + 1, np.bool_)  # a last one that is not held, for all would take nothing
    mask[gap :: gap + 1] = True

    _, needed = smallest_code(mask)

    assert needed <= position_bytes(mask.size, int(mask.sum()))


def test_positions_are_counted_by_the_smaller_of_two_codes():
    """A bit for each of 1,000 entries, or of 20 gaps a byte each, 980 // 127 = 7 that some are long, and 5 around."""
    assert position_bytes(1000, 500) == 125
    assert position_bytes(1000, 20) == 20 + 7 + 5


MODELS: dict[str, tuple[Callable[[], nn.Module], list[int]]] = {
    "mlp": (lambda: mlp(shape=(20,), hidden=(30, 10), classes=4), [20]),
    "double": (lambda: mlp(shape=(20,), hidden=(30, 10), classes=4).double(), [20]),
    "digits": (lambda: mlp(shape=(64,), hidden=(16,), classes=10), [64]),
    "cnn": (lambda: cnn_o(shape=(1, 28, 28), classes=4), [1, 28, 28]),
}
METHODS: dict[str, Callable[[], Method]] = {"fedspa": fedspa, "heterofl": heterofl, "pfedgate": pfedgate}


@cache
def program_of(method: str, model: str) -> Program:
    make, shape = MODELS[model]
    federation = stand_in(Data(sizes=4, shape=shape, classes=4, clients=3))
    return make_program(METHODS[method](), as_networks(make), federation, seed=0)


def whole_sizes(program: Program) -> dict[str, int]:
    return {name: value.numel() for name, value in program.binding(0).network.params.items()}


def some(value: Tensor, count: int, draws: torch.Generator) -> Tensor:
    """A mask with so many ones."""
    mask = torch.zeros(value.numel(), dtype=torch.bool)
    mask[torch.randperm(value.numel(), generator=draws)[:count]] = True
    return mask.reshape(value.shape)


@pytest.mark.parametrize("model", MODELS)
@given(density=st.floats(0.05, 0.99), fewer=st.booleans(), seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_no_message_with_so_many_values_is_larger_than_the_largest(model, density, fewer, seed):
    """With as many values of each tensor and as many bits of each mask, it is not far below; or with fewer."""
    program, draws = program_of("fedspa", model), torch.Generator().manual_seed(seed)
    params, rule = program.binding(0).network.params, program.method.capacity
    sizes = rule.sizes(program.binding(0).network, density)
    counts = {name: count - int(fewer and count > 1) for name, count in sizes.items()}
    held = {name: some(value, counts[name], draws) for name, value in params.items()}
    values: Params = {name: torch.ones_like(value) * held[name] for name, value in params.items()}
    told = {f"mask.{name}": some(value, counts[name], draws) for name, value in params.items()}

    found, most = size(Message(Parcel(values, held), told)), largest_message(program.binding(0))(sizes)

    assert found <= most
    assert fewer or most < 1.1 * found


def test_a_bound_counts_values_positions_masks_names_and_shapes():
    """Of 20, 30, 10 and 4 units with half of the first weight: 4 bytes for each value, and bits in whole bytes.

    A heading has section, length of the name, the name, dtype, number of dimensions, a byte for each of these, and two
    codes: 6 + name + dimensions. A mask of the same shape has 5 more for "mask.". The frame has 4 + 1 + 4 bytes, 2
    for the memory of all tensors (below 16,384), 1 for what is held and 1 for the number of tensors.
    """
    program = program_of("fedspa", "mlp")
    params, whole = program.binding(0).network.params, whole_sizes(program)
    first = next(iter(whole))

    most = largest_message(program.binding(0))(whole | {first: 300})

    assert list(whole.values()) == [600, 30, 300, 10, 40, 4]
    values, bits = 4 * (300 + 30 + 300 + 10 + 40 + 4), 75 + 4 + 38 + 2 + 5 + 1
    headings = sum(6 + len(name) + value.dim() for name, value in params.items())
    assert most == values + 2 * bits + 2 * headings + 5 * 6 + 13
