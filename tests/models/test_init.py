"""Initial values: the spread each rule promises.

The standard deviation of n draws is known to about 1/sqrt(2n) of itself (normal draws; uniform ones are closer), so
five times that is allowed.
"""

from math import sqrt

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.models import char_lstm, cnn_o, cnn_p, lenet32, mlp, resnet8_gn, resnet18_gn, transformer, vgg11_gn
from tests.models.helpers import made, tokens

CONV_LINEAR = (nn.Conv2d, nn.Linear)


def assert_spread(values, std):
    tolerance = 5 / sqrt(2 * values.numel())
    assert values.std().item() == pytest.approx(std, rel=tolerance)
    assert abs(values.mean().item()) < 5 * std / sqrt(values.numel())


def weighted_layers(model, kinds=CONV_LINEAR):
    return [layer for layer in model.modules() if isinstance(layer, kinds)]


def biases(model):
    return torch.cat([layer.bias.detach() for layer in weighted_layers(model)])


@pytest.mark.parametrize(
    "make",
    [lambda: mlp(shape=(784,), hidden=(200,), init="pflego"), cnn_p, cnn_o],
    ids=["mlp", "cnn_p", "cnn_o"],
)
def test_pflego_draws_glorot_normal_weights_and_biases_of_a_hundredth(make):
    model = made(make)
    for layer in weighted_layers(model):
        # sqrt(2 / (fan in + fan out)), a fan being the channels times the places of the kernel.
        places = layer.weight[0, 0].numel()
        fans = places * (layer.weight.shape[0] + layer.weight.shape[1])
        assert_spread(layer.weight.detach(), sqrt(2 / fans))
    # 210 biases of the MLP, 714 of CNN-P, 311 of CNN-O.
    assert_spread(biases(model), 0.01)


def test_pflego_weights_are_normal_not_uniform():
    weight = made(mlp, shape=(784,), hidden=(200,), init="pflego").body[1].weight
    # 4.55% of normal draws are beyond two standard deviations, none of uniform ones; 156,800 draws.
    assert (weight.abs() > 2 * weight.std()).float().mean().item() == pytest.approx(0.0455, abs=0.003)


@pytest.mark.parametrize("make", [cnn_p, cnn_o])
def test_the_initialisation_of_pytorch_can_be_asked_for(make):
    model = made(make, init="torch")
    for layer in weighted_layers(model):
        # PyTorch: uniform on +-1/sqrt(fan in), standard deviation 1/sqrt(3 fan in).
        assert_spread(layer.weight.detach(), 1 / sqrt(3 * layer.weight[0].numel()))


def test_an_mlp_stays_that_of_pytorch_unless_asked():
    one, other = made(mlp), made(mlp, init="torch")
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = nn.Linear(64, 64)
    assert torch.equal(one.body[1].weight, first.weight)


def test_vgg_draws_kaiming_by_fan_out_and_a_small_head():
    model = made(vgg11_gn)
    for layer in weighted_layers(model, nn.Conv2d):
        # sqrt(2 / (9 * filters)).
        assert_spread(layer.weight.detach(), sqrt(2 / (9 * layer.out_channels)))
    assert_spread(model.head.weight.detach(), 0.01)
    assert not biases(model).any()


@pytest.mark.parametrize("make", [resnet8_gn, resnet18_gn])
def test_residual_networks_are_those_of_pytorch_or_by_fan_out(make):
    for layer in weighted_layers(made(make), nn.Conv2d):
        assert_spread(layer.weight.detach(), 1 / sqrt(3 * layer.weight[0].numel()))
    model = made(make, init="kaiming")
    for layer in weighted_layers(model, nn.Conv2d):
        assert_spread(layer.weight.detach(), sqrt(2 / (layer.out_channels * layer.weight[0, 0].numel())))
    assert_spread(model.head.weight.detach(), 1 / sqrt(3 * model.head.in_features))


def test_norms_begin_as_the_identity():
    for model in (resnet8_gn(init="kaiming"), vgg11_gn(), transformer(width=8, classes=5)):
        norms = [layer for layer in model.modules() if isinstance(layer, nn.GroupNorm | nn.LayerNorm)]
        assert norms
        assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in norms)


def test_the_transformer_draws_a_fiftieth_and_zero_biases():
    model = made(transformer)
    for layer in weighted_layers(model, nn.Linear | nn.Embedding):
        assert_spread(layer.weight.detach(), 0.02)
    assert not any(value.any() for name, value in model.named_parameters() if name.endswith("bias"))


def test_an_untrained_transformer_knows_nothing_and_says_so():
    # Features of norm sqrt(256) times embeddings of 0.02 give scores of spread 0.32: log(10,004) + 0.32^2 / 2 = 9.26.
    loss = F.cross_entropy(made(transformer)(tokens(4, 20, classes=10_004)), tokens(4, 20, classes=10_004, seed=1))
    assert loss.item() == pytest.approx(9.26, abs=0.2)


def test_other_networks_are_those_of_pytorch():
    for layer in weighted_layers(made(lenet32)):
        assert_spread(layer.weight.detach(), 1 / sqrt(3 * layer.weight[0].numel()))
    # The LSTM's own rule: uniform on +-1/sqrt(hidden).
    assert_spread(made(char_lstm).lstm.weight_hh_l0.detach(), 1 / sqrt(3 * 256))


def test_an_unknown_rule_is_refused_with_a_suggestion():
    with pytest.raises(InvalidModel, match=r"no initialisation 'pflgo'\. Did you mean 'pflego'"):
        mlp(init="pflgo")
