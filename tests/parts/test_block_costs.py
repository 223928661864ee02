"""What blocks cost: parameters, operations or bytes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from plures.core.networks import Bare
from plures.methods.gating import flops_per_entry, wrap_in_gates
from plures.models import lenet5
from plures.parts.blocks import cut
from plures.parts.gated import GatedOptions
from plures.parts.profile import profile
from tests.parts.gates import Tied, random


def bare(module, *shape):
    module = module.double()
    example = torch.zeros(1, *shape, dtype=torch.float64)
    return Bare(module=module, another=lambda number: module, example=lambda: example)


def test_blocks_cost_their_parameters_operations_or_bytes():
    """A kernel of 3 x 3 has 2 x 2 places on 4 x 4 pixels: 2 * 4 operations per weight and 4 per bias."""
    small = bare(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)), 1, 4, 4)
    options = GatedOptions(cut={"0.weight": [8, 10], "0.bias": [2], "2.weight": [24], "2.bias": [1, 2]})
    entries = [8, 10, 2, 24, 1, 2]
    assert flops_per_entry(small) == {"0.weight": 8.0, "0.bias": 4.0, "2.weight": 2.0, "2.bias": 1.0}
    costs = {kind: wrap_in_gates(options, kind)(small).knapsack.costs for kind in ("parameters", "flops", "bytes")}
    assert costs["parameters"].tolist() == entries
    assert costs["flops"].tolist() == [64, 80, 8, 48, 1, 2]
    assert costs["bytes"].tolist() == [8 * size for size in entries]
    assert all(values.dtype == torch.float64 for values in costs.values())


def test_a_weight_that_two_layers_share_costs_the_operations_of_both():
    assert flops_per_entry(bare(Tied(), 5)) == {"first.weight": 4.0, "first.bias": 1.0, "second.bias": 1.0}


def test_a_parameter_outside_of_layers_costs_one_operation_per_entry():
    class Shifted(nn.Linear):
        def __init__(self):
            super().__init__(3, 2)
            self.shift = nn.Parameter(torch.zeros(2))

        def forward(self, inputs):
            return super().forward(inputs) + self.shift

    assert flops_per_entry(bare(Shifted(), 3)) == {"weight": 2.0, "bias": 1.0, "shift": 1.0}


def test_the_operations_of_all_blocks_are_those_of_a_forward_pass():
    digits = bare(lenet5(), 1, 28, 28)
    costs = cut(digits.module, "first", 5, 0.2).costs(flops_per_entry(digits))
    assert costs.sum() == profile(digits.module, digits.example()).flops()


@pytest.mark.parametrize("cost", ["parameters", "flops", "bytes"])
def test_the_capacity_is_a_share_of_what_blocks_cost(cost):
    """Convolutions of LeNet-5 have 6% of its parameters, but 82% of its operations."""
    digits = bare(lenet5(), 1, 28, 28)
    made = wrap_in_gates(GatedOptions(), cost)(digits)
    made.capacity.fill_(0.5)
    kept = made.selected(random((20, made.blocks.count), 4)).double()
    costs = made.blocks.costs(flops_per_entry(digits) if cost == "flops" else None)
    shares = kept @ costs / costs.sum()
    assert shares.max() <= 0.5
    assert shares.min() > 0.3
