"""Adapters in any network: what they compute, what they begin with, and what stays as it was."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plures.core.seeds import global_draws
from plures.models import char_transformer, resnet8_gn
from plures.parts import adapters, bottleneck_adapters, conv_adapters, lora, num_groups
from tests.core.helpers import copied, same_bits
from tests.parts.networks import INSERT, PLAIN, adapted, examples, residual, seeded, weights, words

kinds = pytest.mark.parametrize("kind", sorted(INSERT))


def set_to_zero(module):
    """The last weights of every adapter: those that the identity at the start asks for."""
    for name, value in module.named_parameters():
        if name.endswith(("adapter.conv.weight", "adapter.up.weight", "adapter.b")):
            value.data.zero_()


# What the network computes


@kinds
@pytest.mark.parametrize("training", [False, True])
def test_a_network_with_adapters_set_to_zero_computes_what_it_did_to_the_last_bit(kind, training):
    plain, network, inputs = PLAIN[kind]().train(training), adapted(kind).train(training), examples(kind).inputs
    set_to_zero(network)
    assert torch.equal(network(inputs), plain(inputs))


@pytest.mark.parametrize("kind", ["bottleneck", "conv"])
def test_adapters_may_start_at_exactly_the_identity(kind):
    inputs = examples(kind).inputs
    assert torch.equal(adapted(kind, zero=True)(inputs), PLAIN[kind]()(inputs))


def test_lora_always_starts_at_exactly_the_identity():
    inputs = examples("lora").inputs
    assert torch.equal(adapted("lora")(inputs), words()(inputs))


@pytest.mark.parametrize(("kind", "close"), [("conv", 2e-3), ("bottleneck", 2e-3)])
def test_adapters_start_close_to_the_identity(kind, close):
    # Conv: a norm's output has variance 1, so a layer of 8 channels moves by about 1e-4 * sqrt(8) = 3e-4 of its scale.
    # Bottleneck: 0.01^2 * sqrt(6 * 2) times the input = 3e-4. Four and six adapters later, 2e-3 bounds the logits.
    inputs = examples(kind).inputs
    difference = (adapted(kind)(inputs) - PLAIN[kind]()(inputs)).abs().max()
    assert 0 < difference < close


@pytest.mark.parametrize(
    ("make", "insert", "inputs"),
    [
        (resnet8_gn, conv_adapters, torch.linspace(-1, 1, 2 * 784).reshape(2, 1, 28, 28).double()),
        (char_transformer, bottleneck_adapters, torch.arange(40).reshape(2, 20)),
    ],
)
def test_networks_of_plures_start_at_or_near_what_they_were(make, insert, inputs):
    # Measured: 0.002 on logits of deviation 0.5 for the ResNet, 7e-5 on those of 0.16 for the transformer.
    plain = seeded(make).double()
    assert torch.equal(insert(plain, zero=True)(inputs), plain(inputs))
    assert 0 < (seeded(insert, plain)(inputs) - plain(inputs)).abs().max() < 0.02


def test_a_conv_adapter_adds_a_convolution_of_the_normed_output_once():
    plain, network = residual(), seeded(conv_adapters, residual(), after="blocks.1.conv2", std=0.5)
    hidden = torch.randn(2, 8, 5, 5, dtype=torch.float64)
    own = network.blocks[1].conv2.adapter
    own.norm.weight.data.uniform_(0.5, 1.5)
    own.norm.bias.data.uniform_(-1, 1)
    output = plain.blocks[1].conv2(hidden)
    # 8 channels are one group; the 1x1 convolution is a matrix over channels.
    mean, variance = output.mean(dim=(1, 2, 3), keepdim=True), output.var(dim=(1, 2, 3), correction=0, keepdim=True)
    normed = (output - mean) / (variance + 1e-5).sqrt() * own.norm.weight[:, None, None] + own.norm.bias[:, None, None]
    expected = output + torch.einsum("oi,bihw->bohw", own.conv.weight[:, :, 0, 0], normed)
    torch.testing.assert_close(network.blocks[1].conv2(hidden), expected, rtol=1e-12, atol=1e-12)


def test_a_bottleneck_adds_two_layers_with_a_relu_between():
    plain, network = words(), seeded(bottleneck_adapters, words(), after="blocks.0.ffn", hidden=3, std=1.0)
    hidden, own = torch.randn(2, 4, 6, dtype=torch.float64), network.blocks[0].ffn[2].adapter
    own.down.bias.data.uniform_(-1, 1)
    output = plain.blocks[0].ffn(hidden)
    inner = (output @ own.down.weight.T + own.down.bias).clamp(min=0)
    torch.testing.assert_close(network.blocks[0].ffn(hidden), output + inner @ own.up.weight.T, rtol=1e-12, atol=1e-12)


def test_lora_is_the_layer_with_a_weight_of_low_rank_added():
    layer = seeded(nn.Linear, 5, 4).double()
    network = seeded(lora, layer, on="*", rank=2, alpha=3.0)
    network.adapter.b.data.normal_()
    inputs = torch.randn(7, 5, dtype=torch.float64)
    added = 3.0 / 2 * network.adapter.b @ network.adapter.a
    expected = F.linear(inputs, layer.weight + added, layer.bias)
    torch.testing.assert_close(network(inputs), expected, rtol=1e-12, atol=1e-12)
    assert torch.linalg.matrix_rank(added) == 2


def test_dropout_in_adapters_draws_in_training_mode_only():
    inputs = examples("conv").inputs
    network = seeded(conv_adapters, residual(), dropout=0.5, std=0.5)
    draws = [seeded(network, inputs, seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    network.eval()
    assert torch.equal(seeded(network, inputs, seed=1), seeded(network, inputs, seed=2))


def test_attention_of_torch_may_have_adapters_though_it_gives_two_outputs():
    layer = seeded(nn.TransformerEncoderLayer, 4, 2, 8, dropout=0.0, batch_first=True).double()
    inputs = torch.randn(2, 3, 4, dtype=torch.float64)
    for training in (True, False):
        network = bottleneck_adapters(layer, after=["self_attn", "linear2"], hidden=2, std=1.0).train(training)
        with torch.no_grad():
            assert not torch.allclose(network(inputs), layer.train(training)(inputs), atol=1e-3)
            set_to_zero(network)
            torch.testing.assert_close(network(inputs), layer(inputs), rtol=1e-12, atol=1e-12)


# What the adapters begin with


def test_conv_adapters_begin_with_small_weights_and_plain_norms():
    own = seeded(conv_adapters, nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3)))[1].adapter
    # 4,096 draws: the estimated deviation is within 5 % of 1e-4 but for one case in a million.
    assert own.conv.weight.std().item() == pytest.approx(1e-4, rel=0.05)
    assert own.conv.bias is None
    assert own.norm.num_groups == 8
    assert torch.equal(own.norm.weight, torch.ones(64))
    assert torch.equal(own.norm.bias, torch.zeros(64))


def test_bottlenecks_begin_with_small_weights_and_no_bias():
    own = seeded(bottleneck_adapters, nn.Sequential(nn.Linear(256, 256)), after="0")[0].adapter
    assert own.down.weight.shape == (16, 256)
    for layer in (own.down, own.up):
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.05)
        assert not layer.bias.any()


@kinds
def test_first_values_come_from_the_global_generator(kind):
    with global_draws(3, "model"):
        first = INSERT[kind](PLAIN[kind]())
    with global_draws(3, "model"):
        again = INSERT[kind](PLAIN[kind]())
    assert same_bits(weights(first), weights(again))
    assert not same_bits(weights(first), weights(adapted(kind, seed=4)))


@pytest.mark.parametrize(
    ("width", "groups"),
    # FedAlt's own code gives the first six; then 8 channels a group, or else the most groups that divide the width.
    [(16, 2), (32, 4), (64, 8), (128, 8), (256, 16), (512, 32), (1, 1), (8, 1), (20, 2), (30, 3), (96, 6), (100, 5)],
)
def test_groups_of_a_norm_go_by_its_width(width, groups):
    assert num_groups(width) == groups


# What stays as it was


@kinds
def test_the_given_network_is_not_touched(kind):
    plain = PLAIN[kind]()
    before, layers = copied(weights(plain)), [name for name, _ in plain.named_modules()]
    network = INSERT[kind](plain)
    assert same_bits(weights(plain), before)
    assert [name for name, _ in plain.named_modules()] == layers
    assert not any(module._forward_hooks for module in plain.modules())
    assert not {id(value) for value in plain.parameters()} & {id(value) for value in network.parameters()}


@kinds
def test_own_parameters_keep_their_names_and_values_and_plain_weights_load(kind):
    plain, network = PLAIN[kind](), adapted(kind)
    own = {name: value for name, value in weights(network).items() if name not in adapters()(network)}
    assert same_bits(own, weights(plain))
    missing, unexpected = network.load_state_dict(plain.state_dict(), strict=False)
    assert set(missing) == adapters()(network)
    assert unexpected == []


@kinds
def test_copies_and_pickles_compute_the_same_with_parameters_of_their_own(kind):
    network, inputs = adapted(kind), examples(kind).inputs
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert same_bits(weights(other), weights(network))
        assert torch.equal(other(inputs), network(inputs))
        for name, value in other.named_parameters():
            if name in adapters()(other):
                value.data.add_(1.0)
        assert not torch.equal(other(inputs), network(inputs))
        assert torch.equal(adapted(kind)(inputs), network(inputs))


def test_adapters_have_precision_and_mode_of_their_layers_and_can_be_trained_where_those_cannot():
    plain = residual().eval().requires_grad_(False)
    network = conv_adapters(plain)
    inserted = [module for name, module in network.named_modules() if name.endswith("adapter")]
    assert len(inserted) == 4
    assert not any(module.training for adapter in inserted for module in adapter.modules())
    assert {value.dtype for value in network.parameters()} == {torch.float64}
    assert {name for name, value in network.named_parameters() if value.requires_grad} == adapters()(network)
