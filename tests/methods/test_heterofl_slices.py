"""HeteroFL: a slice is a smaller network, and which networks cannot be sliced."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import plures
from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.seeds import generator
from plures.core.types import Batch
from plures.data import digits_federation
from plures.local import epochs, sgd
from plures.methods import heterofl
from plures.models import char_lstm, leaf_cnn, lenet32
from tests.helpers.methods import HEAD, Population, assert_near, network, play
from tests.methods.test_heterofl import ALL, masks_of, mixed
from tests.oracles.common import batches_of

# A slice is a smaller network


def pictured(first, second):
    """Two convolutions, one with a batch norm; of pictures of 6 x 6 points 2 x 2 are left."""
    return nn.Sequential(
        nn.Conv2d(1, first, 3),
        nn.BatchNorm2d(first),
        nn.ReLU(),
        nn.Conv2d(first, second, 3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(4 * second, 4),
    ).double()


def pictures():
    """Nine examples of classes 0, 1 and 3 of four."""
    draws = generator(5, "pictures")
    inputs = torch.randn(9, 1, 6, 6, generator=draws, dtype=torch.float64)
    return Population([Batch(inputs, torch.tensor([0, 1, 3, 3, 1, 0, 0, 1, 3]))])


def trained_by_hand(module, client, batches, width):
    """By torch's own optimiser, with the outputs of hidden layers divided by hand."""
    for place in (0, 3):
        module[place].register_forward_hook(lambda layer, given, output: output / width)
    rule = torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.9, weight_decay=0.01)
    for rows in batches:
        logits = module(client.inputs[rows])
        logits[:, 2] = 0.0  # nobody has this class
        rule.zero_grad()
        F.cross_entropy(logits, client.targets[rows]).backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        rule.step()
    return module


def test_a_client_trains_what_a_really_smaller_network_becomes():
    """Width 0.6 of 5 and 4 channels: 3 and 3."""
    module, population, budget = network(lambda: pictured(5, 4)), pictures(), epochs(2, batch=3)
    rule = sgd(0.2, momentum=0.9, weight_decay=0.01)
    run = mixed(1, widths=[0.6], lr=rule, budget=budget, population=population, module=module)
    masks = {name: run.final[0][f"mask.{name}"] for name in dict(module.named_parameters())}
    smaller = pictured(3, 3)
    with torch.no_grad():
        for name, value in smaller.named_parameters():
            value.copy_(run.servers[0].shared[name][masks[name]].view_as(value))
    (client,) = population.batches
    trained_by_hand(smaller, client, batches_of(population.batches, budget)(1, 0), 0.6)
    ((_, result),) = run.results
    for name, value in smaller.named_parameters():
        inside = {name: result.trained[name][masks[name]].view_as(value)}
        assert_near(inside, {name: value.detach()})
        assert not result.trained[name][~masks[name]].any()


def test_half_the_parameters_are_seven_tenths_of_the_width():
    """METHODS 2.18: 0.498 of LeNet-32 and 0.504 of LEAF's network with 62 classes."""
    ratios = []
    for module in (lenet32(), leaf_cnn(classes=62)):
        program = Program(heterofl(width=0.7), OneNetwork(module=module), loss=F.cross_entropy, seed=0)
        ratios.append(sum(program.sizes(0).values()) / sum(value.numel() for value in module.parameters()))
    assert [round(ratio, 3) for ratio in ratios] == [0.498, 0.504]


def test_slices_are_nested_in_the_order_of_their_widths():
    run = mixed(0)
    narrow, middle, whole = (masks_of(run.final[client]) for client in (4, 1, 0))
    assert all(mask.all() for mask in whole.values())
    for name in ALL:
        assert not (narrow[name] & ~middle[name]).any()
    # 4 weights and a bias of each hidden unit, 3 weights to the classes, and 3 biases.
    sizes = [sum(int(mask.sum()) for mask in masks.values()) for masks in (narrow, middle, whole)]
    assert sizes == [8 * units + 3 for units in (1, 2, 3)]


def test_clients_of_one_width_have_one_mask_in_memory():
    run = mixed(1)
    first, second = (masks_of(run.store.get(client)) for client in (1, 2))
    assert all(first[name].data_ptr() == second[name].data_ptr() for name in ALL)


def test_frozen_layers_are_nobodys_slice():
    module = network()
    module.body.requires_grad_(False)
    run = mixed(2, module=module)
    assert set(run.shared) == set(HEAD)
    assert not torch.equal(run.shared["head.weight"], run.servers[0].shared["head.weight"])


# What is refused


@pytest.mark.parametrize(
    "options",
    [{"width": 0.0}, {"width": 1.5}, {"width": math.nan}, {"width": "half"}, {"lr": -0.1}, {"clip_norm": 0.0}],
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(InvalidConfig):
        heterofl(**options)


def test_a_model_with_the_name_of_a_mark_is_told_to_rename_it():
    module = nn.ModuleDict({"classes": nn.Linear(4, 3)})
    with pytest.raises(InvalidModel, match=r"'classes\.weight', but 'classes\.' names marks of classes\. Rename"):
        play(heterofl(), 0, module=module)


class Backwards(nn.Module):
    """The layer that is used last is registered first."""

    def __init__(self):
        super().__init__()
        self.second, self.first, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, inputs):
        return self.head(self.second(self.first(inputs.flatten(1))))


def test_a_network_whose_layers_are_registered_in_another_order_is_refused_before_round_1():
    with pytest.raises(InvalidModel, match=r"Backwards cannot be sliced to width 0.5: 'first' would leave out"):
        plures.run(heterofl(), digits_federation(), Backwards, rounds=1)


def test_a_network_with_layers_that_cannot_be_sliced_is_refused_before_round_1():
    with pytest.raises(InvalidModel, match="CharLstm cannot be sliced to a smaller width because of weight_ih_l0"):
        play(heterofl(), 0, module=char_lstm())
