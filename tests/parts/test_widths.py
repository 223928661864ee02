"""Width slices: which entries of a network are kept, and which networks cannot be sliced."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from plures.core.errors import InvalidConfig, InvalidModel
from plures.models import MODELS, additive, char_lstm, leaf_cnn, lenet32, logistic, mlp, transformer
from plures.parts import bottleneck_adapters, conv_adapters, lora
from plures.parts.widths import check_slices, hidden_layers, kept, sizes, slices
from tests.parts.networks import residual, seeded, words

SLICED = sorted(MODELS.keys() - {"char_lstm", "transformer"})


def digits():
    return torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(3))


# Which entries are kept


def test_the_slices_of_a_small_lenet_are_the_first_channels():
    module = lenet32(shape=(3, 16, 16), filters=(3, 4), fc=(5,), classes=2)
    found = slices(module, 0.5)
    assert found["body.0.weight"].sum() == 2 * 3 * 25
    assert found["body.0.weight"][:2].all()  # all three colours
    assert found["body.3.weight"][:2, :2].all()
    assert found["body.3.weight"].sum() == 2 * 2 * 25
    # One place is left of each picture; 2 of 4 channels, 3 of 5 hidden units, both classes.
    assert found["body.7.weight"].tolist() == [[True, True, False, False]] * 3 + [[False] * 4] * 2
    assert found["body.7.bias"].tolist() == [True] * 3 + [False] * 2
    assert found["head.weight"].tolist() == [[True] * 3 + [False] * 2] * 2
    assert found["head.bias"].all()


def test_a_channel_owns_consecutive_inputs_of_the_linear_layer_after_flattening():
    module = nn.Sequential(nn.Conv2d(1, 3, 1), nn.Flatten(), nn.Linear(12, 2))
    row = slices(module, 0.5)["2.weight"][0]
    assert row.tolist() == [True] * 8 + [False] * 4  # 2 of 3 channels, with 4 places each


def test_flattening_counts_even_where_an_earlier_layer_has_as_many_outputs():
    module = nn.Sequential(nn.Conv2d(1, 12, 1), nn.Conv2d(12, 3, 1), nn.Flatten(), nn.Linear(12, 2))
    assert slices(module, 0.5)["3.weight"][0].tolist() == [True] * 8 + [False] * 4


def test_a_norm_that_is_registered_late_follows_the_layer_of_its_size():
    module = nn.ModuleList([nn.Conv2d(3, 10, 1), nn.Conv2d(10, 5, 1), nn.BatchNorm2d(10), nn.Linear(5, 2)])
    assert slices(module, 0.5)["2.weight"].sum() == 5  # and not twice the 3 channels of the layer right before


def test_a_group_that_is_cut_keeps_the_inputs_that_are_there():
    module = nn.Sequential(nn.Conv1d(1, 8, 1), nn.Conv1d(8, 4, 1, groups=2), nn.Conv1d(4, 2, 1))
    found = slices(module, 0.6)
    # 5 of 8 channels come to two groups of 4; ceil(0.6 * 2) = 2 groups stay, and the second has one input.
    assert found["1.weight"][..., 0].tolist() == [[True] * 4] * 2 + [[True, False, False, False]] * 2
    assert found["2.weight"].all()


def test_an_embedding_keeps_every_word():
    found = slices(words(), 0.5)["embedding.weight"]
    assert found.tolist() == [[True] * 3 + [False] * 3] * 11


def test_an_embedding_that_is_the_output_layer_too_is_cut_once():
    module = nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 11))
    module[2].weight = module[0].weight
    assert sizes(module, 0.5) == {"0.weight": 33, "1.weight": 9, "1.bias": 3, "2.bias": 11}


def test_a_network_of_one_layer_stays_whole():
    assert all(mask.all() for mask in slices(logistic(), 0.1).values())
    assert all(mask.all() for mask in slices(nn.Linear(3, 2), 0.1).values())


@pytest.mark.parametrize("name", SLICED)
def test_slices_are_nested_and_width_one_is_everything(name):
    module = MODELS[name]()
    narrow, wide, full = (slices(module, width) for width in (0.3, 0.55, 1.0))
    shapes = {parameter: value.shape for parameter, value in module.named_parameters()}
    assert {parameter: mask.shape for parameter, mask in narrow.items()} == shapes
    assert all(not (narrow[parameter] & ~wide[parameter]).any() for parameter in shapes)
    assert all(mask.all() for mask in full.values())
    assert all(mask.any() for mask in narrow.values())


def test_width_seven_tenths_has_half_the_parameters_of_the_networks_of_pfedgate():
    # METHODS 2.18: 0.498 for LeNet-32 and 0.504 for LEAF's network with 62 classes.
    ratios = []
    for module in (lenet32(), leaf_cnn(classes=62)):
        ratios.append(sum(sizes(module, 0.7).values()) / sum(value.numel() for value in module.parameters()))
    assert [round(ratio, 3) for ratio in ratios] == [0.498, 0.504]


# How many


def test_widths_are_rounded_up_but_not_for_errors_of_floating_point():
    assert 0.07 * 100 > 7  # 7.000000000000001
    assert (kept(100, 0.07), kept(10, 0.7), kept(32, 0.7), kept(84, 0.7)) == (7, 7, 23, 59)


@given(st.integers(1, 3000), st.integers(1, 1000))
def test_kept_is_the_exact_ceiling_and_at_least_one(size, thousandths):
    assert kept(size, thousandths / 1000) == -(-size * thousandths // 1000)


@pytest.mark.parametrize("width", [0.0, -1.0, 1.5, float("nan")])
def test_a_width_that_is_none_is_refused(width):
    with pytest.raises(InvalidConfig, match="above 0 and at most 1"):
        slices(lenet32(), width)


# Hidden layers


def test_hidden_layers_are_convolutions_and_linear_layers_before_the_output_layer():
    names = {f"body.{place}.{kind}" for place in (0, 3, 7, 9) for kind in ("weight", "bias")}
    assert hidden_layers(lenet32()) == names
    assert "norm.weight" not in hidden_layers(residual())
    assert {"stem.weight", "blocks.1.shortcut.0.bias"} <= hidden_layers(residual())
    assert hidden_layers(logistic()) == frozenset()


# Adapters


def test_adapters_are_cut_like_the_layer_they_follow():
    found = slices(conv_adapters(residual()), 0.5)
    place = "blocks.1.conv2.adapter"
    assert found[f"{place}.norm.weight"].tolist() == [True] * 4 + [False] * 4
    assert found[f"{place}.conv.weight"].sum() == 4 * 4


def test_adapters_in_the_output_layer_stay_whole():
    module = bottleneck_adapters(mlp(hidden=(8,)), after=["head", "body.1"], hidden=4)
    found = slices(module, 0.5)
    assert all(mask.all() for name, mask in found.items() if name.startswith("head.adapter"))
    assert found["head.weight"].sum() == 4 * 10
    assert found["body.1.adapter.down.weight"].sum() == 4 * 2
    assert "head.adapter.up.weight" not in hidden_layers(module)
    check_slices(module, 0.5, digits())


# What cannot be sliced


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (char_lstm, "'lstm', a LSTM"),
        (transformer, "bias of 'head', a TiedHead"),
        (lambda: nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16), nn.Linear(8, 2)), "'0.self_attn', a Multihead"),
        (lambda: additive(mlp(), mlp()), "mixing of the network itself"),
        (lambda: lora(mlp(), on="body.*"), "a, b of 'body.1.adapter', a LowRankAdapter"),
        (lambda: nn.Sequential(nn.LayerNorm((3, 4)), nn.Linear(4, 2)), "weight, bias of '0', a LayerNorm"),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)), "'parametrizations.weight', a Parametriz"),
    ],
)
def test_layers_that_cannot_be_sliced_are_told(make, told):
    with pytest.raises(InvalidModel) as error:
        slices(make(), 0.5)
    assert told in str(error.value)
    assert "Layers that can be sliced: convolutions" in str(error.value)


def test_a_layer_whose_inputs_nobody_gives_is_refused():
    module = nn.ModuleList([nn.Linear(4, 6), nn.Linear(5, 6), nn.Linear(12, 2)])
    with pytest.raises(InvalidModel, match=r"'1' of ModuleList has 5 inputs, but no layer before it has as many"):
        slices(module, 0.5)


def test_a_network_must_end_with_a_layer_that_has_outputs():
    with pytest.raises(InvalidModel, match=r"'1', is a BatchNorm1d. It must be a Linear layer or a convolution"):
        slices(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)), 0.5)
    with pytest.raises(InvalidModel, match="nothing to slice"):
        slices(nn.Flatten(), 0.5)


def test_a_parameter_in_two_places_that_differ_is_refused():
    module = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2))
    module[1].weight = module[0].weight  # all inputs there, half of them here
    with pytest.raises(InvalidModel, match=r"'0.weight' of Sequential is in use in '1' too"):
        slices(module, 0.5)


class SideBySide(nn.Module):
    """Two convolutions of the same input, their channels one after the other: not what flattening one would give."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.short, self.long = nn.Conv1d(6, 5, 1), nn.Conv1d(6, 5, 2)
        self.head = nn.Linear(10, 3)

    def forward(self, tokens):
        hidden = self.embedding(tokens).transpose(1, 2)
        return self.head(torch.cat([self.short(hidden).amax(-1), self.long(hidden).amax(-1)], dim=1))


def test_a_try_finds_outputs_side_by_side():
    with pytest.raises(InvalidModel, match=r"cannot be sliced to width 0.5: 'head' would leave out"):
        check_slices(seeded(SideBySide), 0.5, torch.arange(8).view(2, 4))


def test_a_try_finds_a_second_layer_that_reads_the_input():
    module = seeded(lambda: additive(mlp(hidden=(64,)), mlp(), fusion="sum"))
    with pytest.raises(InvalidModel, match=r"'personal.body.1' would leave out"):
        check_slices(module, 0.5, digits())
