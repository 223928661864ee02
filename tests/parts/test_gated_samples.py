"""Gates for each example: one network per example, without a loop over them; and what cannot be gated so."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.parts.gated import GatedNetwork, GatedOptions
from tests.parts.gates import NETWORKS, assert_same_function, examples, gated, one_by_one, plain, random, scaled
from tests.parts.networks import seeded

names = pytest.mark.parametrize("name", NETWORKS)
cuts = pytest.mark.parametrize("cut", ["first", "equal", "rows"])
rules = pytest.mark.parametrize("dropped_learn", [True, False], ids=["paper", "authors"])


# One network for each example


@names
@cuts
@rules
def test_each_example_meets_a_network_of_its_own_in_value_and_in_every_gradient(name, cut, dropped_learn):
    network, inputs = plain(name), examples(name)
    made = gated(network, inputs, level="sample", cut=cut, dropped_learn=dropped_learn, rows=4, capacity=0.6)
    kept = made.gates(inputs).kept
    assert kept.shape == (4, made.blocks.count)
    assert not kept.all(dim=1).any()
    assert_same_function(made, network, inputs, kept)


@names
def test_of_the_whole_capacity_blocks_are_only_weighed(name):
    network, inputs = plain(name), examples(name)
    made = gated(network, inputs, level="sample", rows=4, capacity=1.0)
    wanted = one_by_one(network, made.blocks, made.gate.weights, inputs)
    torch.testing.assert_close(made(inputs), wanted, rtol=1e-12, atol=1e-13)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["linear", "conv1d", "conv2d", "circular", "series of rows"]),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=12),
    st.lists(st.integers(0, 10**6), max_size=4),
)
def test_cuts_may_go_through_rows_and_many_through_one_row(name, in_weight, in_bias):
    network, inputs = plain(name), examples(name, count=3)
    cut = {}
    for key, value in network.named_parameters():
        places = in_weight if key.endswith("weight") else in_bias
        ends = sorted(place % (value.numel() + 1) for place in places)
        if not key.startswith("1."):  # a norm
            cut[key] = [b - a for a, b in zip([0, *ends], [*ends, value.numel()], strict=True)]
    made = gated(network, inputs, level="sample", cut=cut, rows=3)
    assert_same_function(made, network, inputs, made.gates(inputs).kept)


def test_norms_with_running_statistics_are_as_they_are_in_evaluation():
    network = seeded(nn.Sequential, nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)).double()
    inputs = random((4, 5), 3, low=-1.0)
    network(inputs)
    network.eval()
    made = gated(network, inputs, level="sample", rows=4).eval()
    assert_same_function(made, network, inputs, made.gates(inputs).kept)
    before = made.network[1].running_mean.clone()
    made.train()(inputs)
    assert not torch.equal(made.network[1].running_mean, before)


@cuts
def test_in_evaluation_an_example_has_the_same_output_alone_and_in_any_batch(cut):
    inputs = examples("conv2d", count=6)
    made = seeded(GatedNetwork, plain("conv2d"), inputs[:1], GatedOptions(level="sample", cut=cut))
    made.capacity.fill_(0.6)
    made(inputs)
    made.eval()
    together = made(inputs)
    torch.testing.assert_close(torch.cat([made(one) for one in inputs.split(1)]), together, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(made(inputs.flip(0)), together.flip(0), rtol=1e-12, atol=1e-13)
    assert len({tuple(row) for row in made.gates(inputs).kept.tolist()}) > 1


def test_asked_for_parameters_it_shows_those_of_the_example_that_keeps_most():
    """0.5 of 10 leave min(round(0.3 * 8), 5 - 2) = 2 beside the forced 2: the block of 2, or one of 1 and no more."""
    layer, inputs = nn.Linear(10, 1, bias=False).double(), torch.ones(2, 10, dtype=torch.float64)
    importance = [[0.5, 0.9, 0.3, 0.3], [0.5, 0.3, 0.9, 0.3]]
    options = {"cut": {"weight": [2, 1, 2, 5]}, "importance": importance, "rows": 2}
    made = gated(layer, inputs, level="sample", **options)
    assert made.gates(inputs).kept.int().tolist() == [[1, 1, 0, 0], [1, 0, 1, 0]]
    shown = made(inputs, "parameters")["network.weight"]
    assert (shown != 0).int().tolist() == [[1, 1, 0, 1, 1, 0, 0, 0, 0, 0]]
    assert shown[0, 0] == layer.weight[0, 0] * made.gate.weights[1, 0]


def test_copies_of_a_gated_network_do_not_share_their_gates():
    inputs = examples("two layers")
    made = gated(plain("two layers"), inputs, level="sample", rows=4)
    other = copy.deepcopy(made)
    with torch.no_grad():
        other.network[0].weight.zero_()
        other.gate.weights.fill_(0.5)
    before = made(inputs)
    assert not torch.allclose(other(inputs), before)
    assert torch.equal(made(inputs), before)


# What cannot be gated so


class Functional(nn.Module):
    """Uses its layer's weight without calling the layer."""

    def __init__(self, bias=True):
        super().__init__()
        self.layer = nn.Linear(4, 4, bias=bias)

    def forward(self, inputs):
        return F.linear(inputs, self.layer.weight, self.layer.bias)


class Decoder(Functional):
    """Calls its layer, and then uses the weight the other way round."""

    def forward(self, inputs):
        return F.linear(self.layer(inputs), self.layer.weight.T)


class Doubled(nn.Linear):
    """A layer with a forward pass of its own."""

    def forward(self, inputs):
        return 2 * super().forward(inputs)


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, inputs):
        return self.attention(inputs, inputs, inputs, need_weights=False)[0]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(4, 3, batch_first=True)

    def forward(self, inputs):
        return self.cell(inputs)[0]


class Scaled(nn.Module):
    """A parameter that is of no layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, inputs):
        return self.layer(inputs) * self.scale


class Folded(nn.Module):
    """Puts examples and places into one dimension before its layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, inputs):
        return self.layer(inputs.reshape(-1, 4)).reshape(len(inputs), -1)


class Mixing(nn.Module):
    """What an example gives depends on the others."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, inputs):
        hidden = self.first(inputs)
        return self.second(torch.tanh(hidden - hidden.mean(dim=0)))


OTHERS = {
    "functional": (Functional, (4,)),
    "weight used twice": (Decoder, (4,)),
    "own forward pass": (lambda: Doubled(4, 4), (4,)),
    "grouped convolution": (lambda: nn.Conv2d(4, 4, 3, groups=2), (4, 5, 5)),
    "transposed convolution": (lambda: nn.ConvTranspose1d(4, 3, 2), (4, 5)),
    "attention": (SelfAttention, (3, 4)),
    "recurrent": (Recurrent, (3, 4)),
    "no layer": (Scaled, (4,)),
}
FOLDED = {"folded": (Folded, (3, 4)), "mixing": (Mixing, (4,))}


@pytest.mark.parametrize("case", OTHERS | FOLDED)
def test_a_network_that_does_more_than_call_its_layers_is_refused_for_gates_of_each_example(case):
    make, shape = (OTHERS | FOLDED)[case]
    with pytest.raises(InvalidModel, match=r'outputs of linear layers .*Use level = "batch" with cut = "first"'):
        GatedNetwork(seeded(make), random((1, *shape), 3).float(), GatedOptions(level="sample"))


@pytest.mark.parametrize("case", OTHERS)
def test_a_network_that_does_more_than_call_its_layers_is_refused_for_blocks_of_rows(case):
    make, shape = OTHERS[case]
    with pytest.raises(InvalidModel, match=r'Use .*cut = "first"'):
        GatedNetwork(seeded(make), random((1, *shape), 3).float(), GatedOptions(cut="rows"))


@pytest.mark.parametrize("options", [{"level": "sample"}, {"cut": "rows"}], ids=["samples", "rows"])
def test_it_is_refused_even_if_the_example_is_blank(options):
    """Of a blank example and no bias every gate gives zero, whether the network heeds it or not."""
    with pytest.raises(InvalidModel):
        GatedNetwork(seeded(Functional, bias=False), torch.zeros(1, 4), GatedOptions(**options))


@pytest.mark.parametrize("level", ["batch", "client"])
@pytest.mark.parametrize("case", OTHERS | FOLDED)
def test_what_is_refused_there_works_with_one_set_of_gates_and_the_papers_cut(case, level):
    make, shape = (OTHERS | FOLDED)[case]
    network, inputs = seeded(make).double(), random((4, *shape), 3, low=-1.0)
    made = gated(network, inputs, level=level)
    gates = made.gates(inputs)
    seen = functional_call(network, scaled(network, made.blocks, gates.effective[0]), (inputs,))
    torch.testing.assert_close(made(inputs), seen, rtol=1e-12, atol=1e-13)
    assert not gates.kept.all()
