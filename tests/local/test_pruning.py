"""Pruning, piece by piece: percentiles, room up to a target, distances, accuracy, epochs, channels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from plures.core.client import arrival
from plures.core.problem import Problem
from plures.core.types import Batch
from plures.local import epochs, query, steps
from plures.local.channels import Channels, find_channels
from plures.local.masks import mask_of
from plures.local.pruning import (
    Pruner,
    hamming,
    maskable,
    num_weak,
    train_accuracy,
    updates_of_an_epoch,
    weights_in,
    within,
    without_smallest,
    without_weak_channels,
    without_weak_weights,
)
from plures.methods import sub_fedavg
from tests.helpers.methods import NormedNetwork, Population, federation, network, play


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def truth(*values):
    return torch.tensor(values, dtype=torch.bool)


def problem_of(*, budget=None, sizes=(7,), module=None, population=None, **options):
    """The training phase of the first client."""
    method = sub_fedavg(**({} if budget is None else {"budget": budget}), target_density=0.999, **options)
    run = play(method, 0, population=population or federation(sizes), module=module)
    visit, binding = run.visit(0), run.program.binding(0)
    return Problem(phase=method.local[0], visit=visit, binding=binding, params=arrival(binding, visit))


# Percentiles


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=40),
    share=st.sampled_from([0.0, 0.0625, 0.125, 0.25, 0.5, 0.875]),
    data=st.data(),
)
def test_what_is_left_out_is_what_is_below_numpys_percentile_of_the_active_entries(sizes, share, data):
    """Ties too: of a dozen numbers many are equal. These shares have no rounding, so numpy's places have none."""
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))))
    values = torch.tensor(sizes, dtype=torch.float64)
    found = without_smallest(values, mask, num_weak(mask, share))
    if mask.any():
        bound = float(np.percentile(values[mask].numpy(), 100 * share))
        assert found.tolist() == (mask & (values >= bound)).tolist()
        assert found.any()
    else:
        assert not found.any()


@pytest.mark.parametrize(
    ("active", "share", "count"),
    [(21, 0.05, 1), (22, 0.05, 2), (101, 0.07, 7), (1, 0.9, 0), (0, 0.9, 0), (2, 0.01, 1), (1000, 0.0, 0)],
)
def test_how_many_are_below_a_percentile(active, share, count):
    """ceil(share * (active - 1)): 0.05 * 20 = 1, 0.05 * 21 = 1.05; 0.07 * 100 is 7, though not in floating point."""
    assert num_weak(torch.ones(active, dtype=torch.bool), share) == count


def test_of_equal_ones_at_the_bound_none_is_left_out():
    """The second smallest is 1, and nothing is below it; inactive entries have no say."""
    mask = truth(True, True, True, True, False)
    assert without_smallest(numbers(1, 1, 2, 3, 0), mask, 1).tolist() == mask.tolist()
    assert without_smallest(numbers(1, 1, 2, 3, 0), mask, 2).tolist() == [False, False, True, True, False]


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(0, 300))
def test_counts_are_cut_to_the_room_that_there_is_in_proportion(counts, room):
    found = within(counts, room)
    assert sum(found) == min(sum(counts), room)
    for count, cut in zip(counts, found, strict=True):
        assert 0 <= cut <= count
        if sum(counts) > room:
            assert abs(cut - count * room / sum(counts)) < 1


def test_each_tensor_loses_its_own_smallest_weights_by_size():
    params = {"a": numbers(-5, 1, 2, -3), "b": numbers(0.5, -0.1, 0.2), "c": numbers(7)}
    masks = {name: torch.ones_like(value, dtype=torch.bool) for name, value in params.items()}
    found = without_weak_weights(params, masks, 0.3, 100)  # ceil(0.9), ceil(0.6) and 0
    assert {name: mask.tolist() for name, mask in found.items()} == {
        "a": [True, False, True, True],
        "b": [True, False, True],
        "c": [True],
    }
    assert all(mask.all() for mask in without_weak_weights(params, masks, 0.3, 0).values())


@pytest.mark.parametrize(
    ("target", "left", "room"), [(0.5, 10, 5), (0.5, 6, 1), (0.5, 5, 0), (0.51, 10, 4), (0.7, 8, 1), (1.0, 10, 0)]
)
def test_room_is_what_may_go_until_the_target(target, left, room):
    """Of ten weights 0.51 is 5.1, so 6 must stay; 0.7 is 7, though not in floating point. Biases do not count."""
    masks = {"weight": torch.arange(10) < left, "bias": torch.ones(3, dtype=torch.bool)}
    assert Pruner(share=0.1, target=target, whole_channels=False).room(masks, ["weight"]) == room


def test_distances_are_means_over_tensors_of_shares_of_entries():
    """1 of 4 and 2 of 2: (0.25 + 1) / 2; over all entries it would be 3 / 6."""
    left = {"a": truth(True, True, True, False), "b": truth(True, False)}
    right = {"a": truth(True, True, False, False), "b": truth(False, True), "c": truth(True)}
    assert hamming(left, right) == 0.625
    assert hamming(left, left) == 0.0


# Epochs and accuracy


@pytest.mark.parametrize(
    ("budget", "updates"),
    [
        (epochs(2, batch=3), 3),
        (epochs(5, batch=32), 1),
        (epochs(5, batch=1), 7),
        (epochs(3, batch=2, cap=2), 2),
        (steps(3), 1),
        (steps(9, batch=2), 4),
        (steps(3, batch=2), 3),
        (steps(0), 0),
        (query(epochs(4, batch=1)), 7),
    ],
)
def test_the_first_epoch_ends_when_as_many_examples_were_drawn_as_there_are(budget, updates):
    """Of seven examples, or of the three in a half: twice those and one more."""
    assert updates_of_an_epoch(problem_of(budget=budget)) == updates


def test_batches_that_batch_norm_passes_by_are_no_updates():
    """Of seven examples in batches of three the last has one."""
    problem = problem_of(budget=epochs(2, batch=3), module=network(NormedNetwork), buffers="personal")
    assert updates_of_an_epoch(problem) == 2


def test_the_accuracy_is_that_of_the_masked_network_on_all_training_examples(monkeypatch):
    """The network answers with its inputs; without the weight of class 2, class 2 is never the answer."""
    monkeypatch.setattr("plures.local.pruning.AT_ONCE", 2)
    inputs, targets = torch.eye(3, dtype=torch.float64)[[0, 1, 2, 2, 1]], torch.tensor([0, 1, 2, 2, 0])
    layer = nn.Linear(3, 3).double()
    layer.weight.data, layer.bias.data = torch.eye(3).double(), numbers(0, 0, -0.5)
    problem = problem_of(module=layer, population=Population([Batch(inputs, targets)]))
    assert train_accuracy(problem, problem.params) == 4 / 5
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[2, 2] = False
    assert train_accuracy(problem, problem.params | {mask_of("weight"): mask}) == 2 / 5
    assert not problem.binding.task.module.training


def test_what_the_loss_ignores_has_no_say_in_the_accuracy():
    """Tokens of two texts of three; the network says 1 everywhere. Of the five that are not padding, two are 1."""
    targets = torch.tensor([[1, 2, 0], [1, 2, 2]])
    problem = problem_of(population=Population([Batch(torch.randn(2, 4), torch.tensor([0, 1]))]))
    task = problem.binding.task
    task.loss_function = partial(F.cross_entropy, ignore_index=0)
    task.output = lambda params, inputs: torch.eye(3)[1].view(1, 3, 1).expand(len(inputs), 3, 3)
    tokens = replace(problem, visit=replace(problem.visit, data=Batch(problem.visit.data.inputs, targets)))
    assert train_accuracy(tokens, problem.params) == 2 / 5


# Which weights


class Mixed(nn.Module):
    """Layers of many kinds, and a frozen one."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(5, 4)
        self.recurrent = nn.LSTM(4, 4)
        self.map = nn.Conv1d(4, 4, 1)
        self.norm = nn.GroupNorm(2, 4)
        self.still = nn.Linear(4, 4)
        self.still.requires_grad_(False)
        self.head = nn.Linear(4, 2)


def test_only_weights_of_convolutions_and_linear_layers_that_have_masks_are_pruned():
    binding = play(sub_fedavg(), 0, population=federation([3]), module=Mixed()).program.binding(0)
    masks = {name.removeprefix("mask."): value for name, value in binding.picked(lambda part: part == "known").items()}
    assert "norm.weight" in masks
    assert "still.weight" not in masks
    assert weights_in(binding.network, masks) == ["map.weight", "head.weight"]
    assert binding.names("frozen.candidate") == ["candidate.map.weight", "candidate.head.weight"]


# Channels


def chain(*layers):
    """Layers in a row with a linear layer at the end, for pictures of 2 x 6 x 6."""
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))


def found_in(module, shape=(2, 6, 6)):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        for layer in module.modules():
            if hasattr(layer, "reset_parameters") and not isinstance(layer, nn.LazyLinear):
                layer.reset_parameters()
        module(torch.zeros(1, *shape))
    return find_channels(module, torch.zeros(1, *shape))


def conv(inputs, outputs, **options):
    return nn.Conv2d(inputs, outputs, 3, padding=1, **options)


def test_a_row_of_convolutions_each_takes_the_channels_of_the_one_before():
    """The norm moves all channels of its one group; a silent one is zero after it, with scale and shift."""
    module = chain(conv(2, 4), nn.ReLU(), nn.MaxPool2d(2), conv(4, 6), nn.GroupNorm(1, 6), nn.Tanh())
    assert found_in(module) == [
        Channels("0.weight", None, ("0.bias",), ("3.weight",)),
        Channels("3.weight", "4.weight", ("3.bias", "4.weight", "4.bias"), ("7.weight",)),
    ]


def test_it_is_found_once_for_a_network():
    module = chain(conv(2, 4))
    assert found_in(module) is find_channels(module, torch.zeros(1))


@pytest.mark.parametrize(
    "between",
    [nn.Sigmoid(), nn.GroupNorm(1, 4, affine=False), nn.ChannelShuffle(2), nn.PixelShuffle(1)],
    ids=["sigmoid", "norm without scale", "shuffled", "unshuffled"],
)
def test_only_a_layer_to_which_nothing_comes_of_a_silent_channel_takes_it(between):
    takers = found_in(chain(conv(2, 4), between, conv(4, 4)))[0].takers
    assert takers == (("2.weight",) if isinstance(between, nn.PixelShuffle) else ())


class ChannelsLast(nn.Module):
    def forward(self, maps):
        return maps.permute(0, 2, 3, 1).flatten(1)


def test_a_linear_layer_after_pictures_in_another_order_takes_no_channels():
    (found,) = found_in(nn.Sequential(conv(2, 4), nn.ReLU(), ChannelsLast(), nn.Linear(4 * 36, 3)))
    assert found.takers == ()


class Residual(nn.Module):
    """conv1, conv2 with a way around both, then a mean over places."""

    def __init__(self):
        super().__init__()
        self.stem, self.conv1, self.conv2, self.after = conv(2, 4), conv(4, 4), conv(4, 4), conv(4, 4)
        self.norm2 = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, inputs):
        maps = torch.relu(self.stem(inputs))
        maps = torch.relu(self.norm2(self.conv2(torch.relu(self.conv1(maps)))) + maps)
        return self.head(torch.relu(self.after(maps)).mean((2, 3)))


def test_what_comes_over_a_shortcut_is_still_taken():
    assert [(found.weight, found.scale, found.takers) for found in found_in(Residual())] == [
        ("stem.weight", None, ("conv1.weight",)),
        ("conv1.weight", None, ("conv2.weight",)),
        ("conv2.weight", "norm2.weight", ()),
        ("after.weight", None, ("head.weight",)),
    ]


def test_convolutions_without_biases_in_a_row_are_not_all_fed_by_the_first():
    """If the first is silent, nothing comes to the third either; but all of its inputs come from all of the first's."""
    module = chain(conv(2, 4, bias=False), nn.ReLU(), conv(4, 4, bias=False), nn.ReLU(), conv(4, 4, bias=False))
    assert [found.takers for found in found_in(module)] == [("2.weight",), ("4.weight",), ("6.weight",)]


def test_grouped_and_transposed_convolutions_and_outputs_have_no_channels_to_prune():
    module = nn.Sequential(conv(2, 4, groups=2), nn.ConvTranspose2d(4, 4, 1), conv(4, 3), nn.AvgPool2d(6), nn.Flatten())
    assert found_in(module) == []


def test_neighbouring_inputs_of_a_linear_layer_belong_to_a_channel():
    channels = Channels("conv.weight", None, ("conv.bias",), ("next.weight", "linear.weight"))
    shapes = {"conv.weight": (3, 2, 1, 1), "conv.bias": (3,), "next.weight": (5, 3, 1, 1), "linear.weight": (2, 12)}
    params = {name: torch.zeros(shape) for name, shape in shapes.items()}
    everything = slice(None)
    assert {name: channels.places(name, 1, params) for name in params} == {
        "conv.weight": (slice(1, 2),),
        "conv.bias": (slice(1, 2),),
        "next.weight": (everything, slice(1, 2)),
        "linear.weight": (everything, slice(4, 8)),
    }


def three_channels(scale=None):
    """Filters of sizes 3, 1 and 2, of two entries each, with two linear weights on each."""
    others = ("conv.bias",) if scale is None else ("conv.bias", "norm.weight")
    layer = Channels("conv.weight", None if scale is None else "norm.weight", others, ("linear.weight",))
    params = {
        "conv.weight": numbers(1, -2, 0.5, 0.5, -1, -1).view(3, 2, 1, 1),
        "conv.bias": numbers(0, 9, 0),
        "linear.weight": numbers(*range(6)).view(1, 6),
    }
    if scale is not None:
        params["norm.weight"] = numbers(*scale)
    return layer, params, {name: torch.ones_like(value, dtype=torch.bool) for name, value in params.items()}


@pytest.mark.parametrize(
    ("scale", "share", "room", "left"),
    [
        (None, 0.5, 100, [True, False, True]),  # ceil(0.5 * 2) = 1
        (None, 0.6, 100, [True, False, False]),  # ceil(0.6 * 2) = 2
        (None, 0.6, 7, [True, False, True]),  # 4 weights go with each channel
        (None, 0.6, 8, [True, False, False]),
        (None, 0.6, 3, [True, True, True]),
        ((-0.1, 3.0, 2.0), 0.5, 100, [False, True, True]),
    ],
)
def test_the_weakest_channels_go_first_and_all_that_belongs_to_them(scale, share, room, left):
    layer, params, masks = three_channels(scale)
    found = without_weak_channels([layer], params, masks, share, room)
    for name in layer.own:
        assert found[name].flatten(1).all(1).tolist() == left if found[name].dim() > 1 else found[name].tolist() == left
    assert found["linear.weight"].flatten().tolist() == [one for one in left for _ in range(2)]
    assert all(mask.all() for mask in masks.values())


def test_the_last_channel_stays():
    layer, params, masks = three_channels()
    for _ in range(5):
        masks = without_weak_channels([layer], params, masks, 0.9, 100)
    assert masks["conv.bias"].tolist() == [True, False, False]


def test_layers_whose_parameters_have_no_masks_keep_their_channels():
    layer, _, masks = three_channels()
    assert maskable([layer], masks) == [layer]
    assert maskable([layer], {name: masks[name] for name in layer.own}) == [layer._replace(takers=())]
    assert maskable([layer], {name: masks[name] for name in ("conv.weight", "linear.weight")}) == []
