"""Masks: what a client sees, receives and sends under them, and how they are drawn."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from plures.core.errors import InvalidModel
from plures.core.networks import Network
from plures.core.types import Batch, Facts
from plures.core.visit import Trained, Visit
from plures.local.masks import (
    mask_of,
    masked,
    masked_delta,
    masked_download,
    masks_in,
    newly_masked_delta,
    random_mask,
    with_masks,
)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def bits(*values):
    return torch.tensor(values, dtype=torch.bool)


def visit(received, state):
    facts = Facts(examples=2, cohort_examples=2, all_examples=4, cohort_clients=1, all_clients=2, inclusion=0.5)
    data = Batch(torch.zeros(2, 1), torch.zeros(2))
    return Visit(client=0, round=1, seed=0, data=data, facts=facts, received=received, state=state)


def is_positive_zero(value):
    return value == 0 and math.copysign(1, value) == 1


# Names


def test_a_mask_is_named_after_its_parameter():
    assert mask_of("a.weight") == "mask.a.weight"
    assert masks_in({"a": numbers(1), "mask.a": bits(1), "unmask.a": numbers(2)}) == {"a": bits(1)}


def test_every_shared_parameter_gets_a_mask_of_ones_that_the_server_knows_of():
    params = {"a": torch.zeros(2, 3), "b": torch.zeros(()), "own": torch.zeros(2), "still": torch.zeros(2)}
    parts = {"a": "shared", "b": "shared", "own": "personal", "still": "frozen", "norm.running_mean": "shared.buffers"}
    added = with_masks(Network(module=nn.Identity(), params=params, parts=parts))
    assert list(added) == ["known"]
    assert {name: (mask.dtype, mask.shape) for name, mask in added["known"].items()} == {
        "mask.a": (torch.bool, (2, 3)),
        "mask.b": (torch.bool, ()),
    }
    assert all(mask.all() for mask in added["known"].values())


@pytest.mark.parametrize("part", ["shared", "frozen", "shared.buffers"])
def test_a_model_that_has_such_a_name_is_told_to_rename_it(part):
    network = Network(module=nn.Identity(), params={}, parts={"mask.a": part})
    with pytest.raises(InvalidModel, match=r"'mask\.a', but 'mask\.' names masks\. Rename"):
        with_masks(network)


# The view


def test_the_network_sees_zeros_where_a_mask_is_zero_and_no_masks():
    params = {"a": numbers(1, -2, 3), "free": numbers(4), "mask.a": bits(1, 0, 1)}
    seen = masked(params, torch.zeros(1))
    assert {name: value.tolist() for name, value in seen.items()} == {"a": [1, 0, 3], "free": [4]}
    assert params["a"].tolist() == [1, -2, 3]


def test_what_a_mask_leaves_out_gets_no_gradient():
    """d (2 a_0 + 3 a_1 + a_0 a_2) is (2 + a_2, 3, a_0) = (2 + 3, 3, 1), of which the mask keeps the ends."""
    a = numbers(1, -2, 3).requires_grad_()
    seen = masked({"a": a, "mask.a": bits(1, 0, 1)}, torch.zeros(1))["a"]
    (2 * seen[0] + 3 * seen[1] + seen[0] * seen[2]).backward()
    assert a.grad.tolist() == [5, 0, 1]


# What travels


def test_a_client_receives_the_values_that_its_masks_keep_and_all_of_what_has_no_mask():
    known = {"mask.a": bits(1, 0, 1)}
    parcel = masked_download({"a": numbers(1, -2, 3), "running_mean": numbers(4, 5)}, known)
    assert {name: value.tolist() for name, value in parcel.values.items()} == {"a": [1, 0, 3], "running_mean": [4, 5]}
    assert is_positive_zero(parcel.values["a"][1])
    assert {name: mask.tolist() for name, mask in parcel.held.items()} == {"a": [True, False, True]}


@pytest.mark.parametrize(
    ("make", "values", "held"),
    [(masked_delta, [3, -1, 0], [1, 1, 0]), (newly_masked_delta, [0, -1, 5], [0, 1, 1])],
    ids=["as it trained", "from now on"],
)
def test_a_client_sends_received_minus_trained_under_its_masks(make, values, held):
    """(4, 1, 0) - (1, 2, -5) = (3, -1, 5), under the mask 110 that it had or the mask 011 that it has."""
    trained = Trained(shared={"a": numbers(1, 2, -5), "free": numbers(1)}, observed={}, known={"mask.a": bits(0, 1, 1)})
    upload = make(visit({"a": numbers(4, 1, 0), "free": numbers(3)}, {"mask.a": bits(1, 1, 0)}), trained)
    assert {name: value.tolist() for name, value in upload.values.items()} == {"a": values, "free": [2]}
    assert {name: mask.int().tolist() for name, mask in upload.held.items()} == {"a": held, "free": [1]}
    assert all(mask.dtype == torch.bool for mask in upload.held.values())


def test_off_the_mask_zero_is_positive_whatever_was_there():
    """A product with the mask would give -0.0 for negative changes, and nan for what is not finite."""
    trained = Trained(shared={"a": numbers(5, math.inf, math.nan)}, observed={}, known={})
    upload = masked_delta(visit({"a": numbers(0, 0, 0)}, {"mask.a": bits(0, 0, 0)}), trained)
    assert all(is_positive_zero(value) for value in upload.values["a"].tolist())


# Draws


def drawn(like, count, seed=0):
    return random_mask(like, count, torch.Generator().manual_seed(seed))


@given(shape=st.lists(st.integers(0, 5), max_size=3), data=st.data())
def test_a_random_mask_has_the_shape_and_so_many_ones_and_holds_those_of_fewer(shape, data):
    like = torch.zeros(shape, dtype=torch.float64)
    few = data.draw(st.integers(0, like.numel()))
    many = data.draw(st.integers(few, like.numel()))
    smaller, larger = drawn(like, few), drawn(like, many)
    assert (smaller.dtype, smaller.shape) == (torch.bool, like.shape)
    assert (int(smaller.sum()), int(larger.sum())) == (few, many)
    assert not (smaller & ~larger).any()


def test_every_place_of_a_random_mask_is_as_likely_as_another():
    """3 of 5 places, 1000 times: each place is one 600 times, with a deviation of sqrt(1000 * 0.6 * 0.4) = 15.5."""
    total = sum(drawn(torch.zeros(5), 3, seed).int() for seed in range(1000))
    assert total.sum() == 3000
    assert (total - 600).abs().max() < 5 * 15.5
