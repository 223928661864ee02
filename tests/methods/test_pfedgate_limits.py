"""pFedGate at its limits: few classes, few operations, blocks of one's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import plures
from plures.core.errors import InvalidInput, InvalidModel
from plures.core.types import Batch
from plures.local import steps
from plures.methods import pfedgate
from plures.parts.gated import GatedNetwork, GatedOptions
from tests.methods.test_pfedgate_use import digits, short


def of_two_classes(size=24):
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(size, 1, 6, 6, generator=draws)
    return Batch(inputs, (inputs.mean(dim=(1, 2, 3)) > 0).long())


def small(classes=2):
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, classes))


# Rows of a small classifier


def test_of_two_rows_one_is_kept_where_half_may_be():
    """Nothing of two rows is always kept, floor(2 * 0.2) = 0: all of s is for them, 0.5 * 258 = one row of 129."""
    gated = GatedNetwork(small(), torch.zeros(1, 1, 6, 6), GatedOptions(cut="rows"))
    assert gated.knapsack.rooms(0.5).tolist()[1] == 129
    federation = plures.data.federate([(of_two_classes(), of_two_classes()) for _ in range(3)])
    result = plures.run(pfedgate(cut="rows", budget=steps(1)), federation, small(), rounds=3)
    for client in range(3):
        model = result.personal_model(client)
        assert model(of_two_classes().inputs).abs().max() > 0


def test_a_classifier_of_which_no_row_fits_is_refused():
    federation = plures.data.federate([(of_two_classes(), of_two_classes()) for _ in range(3)])
    with pytest.raises(InvalidInput, match=r"No block of '3.weight' fits a capacity of 0.4"):
        plures.run(pfedgate(cut="rows", density=0.4), federation, small(), rounds=1)


# Operations


@pytest.mark.parametrize("layer", [nn.LSTM(8, 4, batch_first=True), nn.MultiheadAttention(8, 2, batch_first=True)])
def test_operations_of_layers_that_are_not_counted_are_refused_not_guessed(layer):
    class Sequenced(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = layer, nn.Linear(4 if isinstance(layer, nn.LSTM) else 8, 10)

        def forward(self, inputs):
            rows = inputs[:, 0]
            found = self.layer(rows)[0] if isinstance(self.layer, nn.LSTM) else self.layer(rows, rows, rows)[0]
            return self.head(found[:, -1])

    with pytest.raises(InvalidModel, match="Operations are counted of convolutions and linear layers"):
        short(pfedgate(block_cost="flops"), Sequenced())
    assert short(pfedgate(budget=steps(1)), Sequenced()).status == "finished"


def test_a_capacity_in_operations_finds_the_model_that_fits_though_smaller_ones_do_not_exist():
    """Below least = 0.2 there is no model; the search must not take that for a model that costs too much."""
    result = short(pfedgate(budget=steps(1)), capacity={"flops": 0.5})
    assert 0.2 <= result.program.capacity(0) < 0.5


def test_where_density_is_of_operations_other_units_are_refused():
    with pytest.raises(InvalidInput, match=r"capacity\.flops: give capacity\.density"):
        short(pfedgate(block_cost="flops"), capacity={"flops": 0.9})


def test_nothing_need_be_always_kept():
    result = short(pfedgate(least=0.0, splits=20, density=0.2, budget=steps(1)))
    blocks = result.program.binding(0).task.module.blocks
    assert blocks.forced == frozenset()
    assert all(line["used"] <= 1 for line in result.history)


# Blocks of one's own


CHANNELS = {"0.weight": [0] + [9] * 8, "0.bias": [0] + [1] * 8, "3.weight": [0, 128, 128], "3.bias": [0, 1, 1]}


@pytest.mark.parametrize("dropped_learn", [True, False], ids=["paper", "authors"])
@pytest.mark.parametrize("capacity", [0.3, 0.6, 1.0])
def test_cuts_between_rows_are_skipped_and_right(dropped_learn, capacity):
    """Against weights that are multiplied by their gates, in values and gradients; biases are blocks of their own."""
    batch, network = of_two_classes(9), small().double()
    options = GatedOptions(cut=CHANNELS, least=0.1, dropped_learn=dropped_learn)
    torch.manual_seed(0)
    gated = GatedNetwork(network, batch.inputs[:1].double(), options)
    assert gated.equipped
    gated.capacity.fill_(capacity)

    def found(by_layers):
        if not by_layers:
            gated.equipped = False
            for layer in gated.network.modules():
                layer.__dict__.pop("forward", None)
        output = gated(batch.inputs.double())
        grads = torch.autograd.grad(
            F.cross_entropy(output, batch.targets), list(gated.parameters()), materialize_grads=True
        )
        return [output.detach(), *grads]

    for skipped, dense in zip(found(True), found(False), strict=True):
        assert torch.allclose(skipped, dense, rtol=1e-10, atol=1e-14)


def test_cuts_between_rows_of_a_network_that_cannot_skip_still_run():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(64, 64)
            self.head = nn.Linear(64, 10)

        def forward(self, inputs):
            hidden = F.relu(F.linear(inputs.flatten(1), self.body.weight))
            return self.head(hidden + self.body(hidden))

    cuts = {"body.weight": [64 * 32] * 2, "head.weight": [64 * 5] * 2}
    result = short(pfedgate(cut=cuts, density=0.8, budget=steps(1)), Tied())
    assert not result.program.binding(0).task.module.equipped
    assert result.status == "finished"


def test_the_default_rates_learn_on_digits():
    result = plures.run("pfedgate", digits(), plures.models.mlp, rounds=25)
    assert result.metrics["personal/test/accuracy"].weighted > 0.3
