"""What an example costs: operations with the printed figures of FedSpa's paper, and memory against what torch keeps."""

from copy import deepcopy
from functools import cache

import pytest
import torch
from torch import nn

from plures.core.errors import InvalidData
from plures.models import MODELS, char_lstm, char_transformer, lenet5, mlp, resnet18_gn, transformer, vgg11_gn
from plures.parts import conv_adapters
from plures.parts.densities import counts, erk, uniform
from plures.parts.profile import activation_bytes, kept_bytes, profile
from plures.parts.widths import sizes
from tests.parts.networks import examples, residual

CLIENTS, EPOCHS, BATCH = 10, 5, 128
FEDSPA = {
    "lenet5": (lenet5, (1, 28, 28), 400, 1248),
    "vgg11": (vgg11_gn, (3, 32, 32), 1000, 500),
    "resnet18": (resnet18_gn, (3, 32, 32), 1000, 500),
}
"""Network, input, rounds and training examples of a client (METHODS 3.4)."""


@cache
def measured(name):
    make, shape, _, _ = FEDSPA[name]
    module = make()
    return profile(module, torch.zeros(1, *shape)), {
        key: tuple(value.shape) for key, value in module.named_parameters()
    }


def training_flops(name, density=1.0, rule=erk, search=False):
    """3 * forward * examples * epochs by client and round; a search of masks is one batch in the dense network."""
    cost, shapes = measured(name)
    _, _, rounds, num_examples = FEDSPA[name]
    passes = cost.flops(counts(shapes, rule(shapes, density))) * num_examples * EPOCHS
    return 3 * rounds * CLIENTS * (passes + search * cost.flops() * BATCH)


# The tables of FedSpa's paper (METHODS 0.5 and 3.4)


def test_a_forward_pass_of_lenet5_has_the_operations_of_its_layers():
    cost, _ = measured("lenet5")
    by_hand = {
        "body.0.weight": (2 * 20 * 25 + 20) * 24**2,
        "body.3.weight": (2 * 50 * 20 * 25 + 50) * 8**2,
        "body.7.weight": 2 * 500 * 800 + 500,
        "head.weight": 2 * 26 * 500 + 26,
    }
    assert {layer.weight: layer.flops({}) for layer in cost.layers} == by_hand
    assert cost.flops() == sum(by_hand.values()) == 4_617_246
    assert cost.other_flops == 0


@pytest.mark.parametrize(("name", "printed"), [("lenet5", 3.46), ("vgg11", 229.3), ("resnet18", 833.2)])
def test_dense_training_costs_what_table_1_prints(name, printed):
    assert training_flops(name) / 1e14 == pytest.approx(printed, abs=0.05 if printed > 10 else 0.005)


@pytest.mark.parametrize(("name", "printed"), [("lenet5", 2.0), ("vgg11", 172.9), ("resnet18", 705.0)])
def test_training_half_the_entries_and_searching_masks_costs_what_table_1_prints(name, printed):
    assert training_flops(name, 0.5, search=True) / 1e14 == pytest.approx(printed, abs=0.05)


@pytest.mark.parametrize(("name", "cost"), [("lenet5", 1.894), ("vgg11", 161.17), ("resnet18", 662.37)])
def test_without_the_search_of_masks_it_costs_less_than_table_1_prints_for_random_static_masks(name, cost):
    # The paper prints 2.0, 173 and 705 for RSM, which are the figures with a search that RSM does not make.
    assert training_flops(name, 0.5) / 1e14 == pytest.approx(cost, rel=5e-4)


@pytest.mark.parametrize(("name", "ratio"), [("lenet5", 0.5477), ("vgg11", 0.7030), ("resnet18", 0.7950)])
def test_half_the_entries_need_the_share_of_operations_of_the_reference(name, ratio):
    assert round(training_flops(name, 0.5) / training_flops(name), 4) == ratio  # METHODS 2.21


@pytest.mark.parametrize(("sparsity", "printed"), [(0.2, 8.22), (0.4, 7.55), (0.5, 7.05), (0.6, 6.52), (0.8, 4.61)])
def test_the_sweep_over_sparsity_costs_what_table_3_prints(sparsity, printed):
    assert round(training_flops("resnet18", 1 - sparsity, search=True) / 1e16, 2) == printed


def test_uniform_densities_cost_what_table_4_prints():
    # Half of 8.332e16, and the search: 0.5 + 128 / 2500. The printed figure cannot tell whether the first and the last
    # layer are dense (4.606e16), or biases and norms (4.593e16).
    found = training_flops("resnet18", 0.5, rule=uniform, search=True)
    assert found / 1e16 == pytest.approx(8.332 * (0.5 + 128 / 2500), abs=1e-3)
    assert round(found / 1e16, 1) == 4.6


# Operations


def test_nonzero_entries_of_weights_and_biases_are_what_counts():
    cost = profile(nn.Linear(7, 5), torch.zeros(1, 7))
    assert cost.flops() == 2 * 35 + 5
    assert cost.flops({"weight": 10}) == 2 * 10 + 5
    assert cost.flops({"weight": 10, "bias": 2, "something": 9}) == 2 * 10 + 2


def test_a_slice_of_a_network_costs_what_the_smaller_network_costs():
    example = torch.zeros(1, 1, 28, 28)
    module = lenet5()
    narrow = profile(lenet5(filters=(10, 25), fc=(250,)), example)
    assert profile(module, example).flops(sizes(module, 0.5)) == narrow.flops()


def test_a_layer_that_is_used_twice_counts_twice():
    layer = nn.Linear(4, 4, bias=False)
    assert profile(nn.Sequential(layer, nn.ReLU(), layer), torch.zeros(1, 4)).flops() == 2 * 2 * 16


def test_a_layer_that_is_not_used_costs_nothing():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, inputs):
            return self.used(input=inputs)

    assert [layer.weight for layer in profile(Half(), torch.zeros(1, 4)).layers] == ["used.weight"]


def test_grouped_and_transposed_convolutions_are_counted_by_what_they_multiply():
    module = nn.Sequential(nn.Conv2d(4, 8, 3, groups=4), nn.ConvTranspose2d(8, 6, 2, stride=2, groups=2))
    cost = profile(module, torch.zeros(1, 4, 5, 5))
    # 8 * 1 * 9 weights at 3 x 3 places; 8 * 3 * 4 weights for each of 3 x 3 inputs, and biases at 6 x 6 places.
    assert cost.flops() == (2 * 72 + 8) * 9 + 2 * 96 * 9 + 6 * 36
    assert cost.other_flops == 0


def test_a_weight_that_two_layers_share_has_one_name():
    module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    cost = profile(module, torch.zeros(1, 4))
    assert [layer.weight for layer in cost.layers] == ["0.weight", "0.weight"]
    assert cost.flops({"0.weight": 3}) == 2 * 3 + 2 * 3 + 4


def test_attention_is_counted_among_the_other_operations():
    cost = profile(char_transformer(), torch.zeros(1, 80, dtype=torch.long))
    # In each of 2 blocks, scores and mixtures: 80 x 80 pairs of places, 64 products each.
    assert cost.other_flops == 2 * 2 * (2 * 80 * 80 * 64)
    layers = 2 * (4 * 2 * 64**2 + 2 * 2 * 64 * 256 + 256 + 64) + 2 * 64 * 80 + 80
    assert cost.flops() == 80 * layers + cost.other_flops


def test_an_output_layer_that_borrows_the_embedding_is_counted_among_the_other_operations():
    cost = profile(transformer(), torch.zeros(1, 20, dtype=torch.long))
    assert cost.other_flops == 2 * 20 * 256 * 10_004 + 4 * 2 * (2 * 20 * 20 * 256)


def test_a_recurrent_layer_is_counted_among_the_other_operations():
    cost = profile(char_lstm(), torch.zeros(1, 80, dtype=torch.long))
    # Four gates of 256 units at 80 places: 8 + 256 inputs in the first layer, 256 + 256 in the second.
    assert cost.other_flops == 80 * 2 * 4 * 256 * (8 + 256 + 256 + 256)


def test_attention_of_torch_is_counted_too():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    # Projections of attention, 3 + 1 of 8 x 8 at 5 places, and 5 x 5 pairs twice; the rest are linear layers.
    assert profile(layer, torch.zeros(1, 5, 8)).other_flops == 2 * 5 * 4 * 64 + 2 * 2 * 25 * 8


def test_adapters_are_counted():
    plain, adapted = residual(), conv_adapters(residual())
    inputs = examples("conv").inputs
    more = profile(adapted, inputs).flops() - profile(plain, inputs).flops()
    assert more == 2 * 25 * (2 * 4 * 4 + 2 * 8 * 8)  # two convolutions of each width, at 5 x 5 places


def test_the_cost_does_not_depend_on_the_examples_given():
    module = mlp(batch_norm=True)
    assert profile(module, torch.zeros(1, 1, 8, 8)) == profile(module, torch.ones(4, 1, 8, 8, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(0, 4), ()])
def test_no_example_is_refused(shape):
    with pytest.raises(InvalidData, match="Give a batch of one example at least"):
        profile(nn.Linear(4, 2), torch.zeros(shape))


def test_the_network_the_generators_and_the_settings_of_torch_stay_as_they_were():
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2))
    module[1].eval()
    before, state, hooks = deepcopy(module.state_dict()), torch.get_rng_state(), deepcopy(module._forward_hooks)
    profile(module, torch.ones(2, 4))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert [layer.training for layer in module] == [True, False, True, True]
    assert module._forward_hooks == hooks
    assert all(value.grad is None for value in module.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.backends.mkldnn.enabled
    assert torch.backends.cudnn.enabled
    assert torch.backends.mha.get_fastpath_enabled()


# Memory


def test_what_is_kept_for_the_backward_pass_of_an_mlp_is_known_by_hand():
    module = nn.Sequential(nn.Linear(10, 6), nn.ReLU(), nn.Linear(6, 3))
    # The input, and the output of ReLU, which is the input of the last layer as well and counts once.
    cost = profile(module, torch.zeros(1, 10))
    assert (cost.fixed_bytes, cost.example_bytes) == (0, 4 * (10 + 6))
    assert activation_bytes(module.double(), torch.zeros(1, 10), 7) == 7 * 8 * (10 + 6)


def test_frozen_layers_keep_less():
    module = nn.Sequential(nn.Linear(10, 6), nn.Linear(6, 3))
    module[0].requires_grad_(False)
    assert profile(module, torch.zeros(1, 10)).example_bytes == 4 * 6


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"char_lstm", "vgg11_gn", "resnet18_gn", "transformer"}))
def test_memory_grows_by_the_same_with_every_example(name):
    module = MODELS[name]()
    shapes = {"logistic": (784,), "mlp": (1, 8, 8), "cnn_1d": (6, 128), "cnn_p": (3, 32, 32), "lenet32": (3, 32, 32)}
    tokens = name == "char_transformer"
    example = torch.zeros(1, 80, dtype=torch.long) if tokens else torch.rand(1, *shapes.get(name, (1, 28, 28)))
    for batch in (2, 9, 32):
        assert activation_bytes(module, example, batch) == kept_bytes(module, torch.cat([example] * batch))
    assert profile(module, example).activation_bytes(9) == activation_bytes(module, example, 9)


def test_memory_grows_linearly_with_batch_norm_and_dropout_too():
    module = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(108, 2)
    )
    example = torch.rand(1, 1, 8, 8)
    assert activation_bytes(module, example, 50) == kept_bytes(module, torch.cat([example] * 50))
    assert profile(module, example).fixed_bytes > 0  # batch statistics


def test_memory_of_a_recurrent_layer_grows_almost_linearly():
    # The library below torch chooses other layouts of the weights for some batches.
    module, example = char_lstm(), torch.zeros(1, 80, dtype=torch.long)
    found = kept_bytes(module, torch.cat([example] * 16))
    assert activation_bytes(module, example, 16) == pytest.approx(found, rel=0.01)
