"""Where adapters go in a network: by default, by patterns, in Sequentials, and twice under two names."""

import pytest
import torch
from torch import nn

from plures.core.errors import InvalidModel
from plures.parts import adapters, bottleneck_adapters, conv_adapters, head, lora
from tests.parts.networks import count, residual, words


def layers_with(network, name="adapter"):
    return {path.removesuffix("." + name) for path, _ in network.named_modules() if path.endswith("." + name)}


def test_by_default_convolutions_have_adapters_but_for_the_stem_and_shortcuts():
    places = {f"blocks.{block}.conv{place}" for block in (0, 1) for place in (1, 2)}
    assert layers_with(conv_adapters(residual())) == places
    # Widths 4, 4, 8, 8: a matrix over channels and a norm's scale and shift.
    network = conv_adapters(residual())
    assert count(network, adapters()(network)) == 2 * (4 * 4 + 2 * 4) + 2 * (8 * 8 + 2 * 8) == 208


def test_by_default_attention_and_feed_forward_networks_have_bottlenecks():
    network = bottleneck_adapters(words(), hidden=2)
    # The feed-forward network is a Sequential, which would run an adapter of its own as one more step.
    assert layers_with(network) == {f"blocks.{block}.{half}" for block in range(3) for half in ("attention", "ffn.2")}
    # Down: 6 * 2 + 2; up: 2 * 6 + 6.
    assert count(network, adapters()(network)) == 6 * (14 + 18) == 192


def test_patterns_choose_other_layers_and_several_are_their_union():
    assert layers_with(conv_adapters(residual(), after="stem")) == {"stem"}
    assert layers_with(conv_adapters(residual(), after=["stem", "*.shortcut.*"])) == {"stem", "blocks.1.shortcut.0"}
    assert layers_with(conv_adapters(residual(), after="*")) == layers_with(conv_adapters(residual())) | {
        "stem",
        "blocks.1.shortcut.0",
    }
    assert layers_with(lora(words(), on="*.query")) == {f"blocks.{block}.attention.query" for block in range(3)}
    assert layers_with(bottleneck_adapters(residual(), after="head", hidden=1)) == {"head"}


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(2, 8, 3), (2, 2, 6)),
        (nn.Conv2d(2, 8, 3), (2, 2, 6, 6)),
        (nn.Conv3d(2, 8, 3), (2, 2, 6, 6, 6)),
        (nn.ConvTranspose2d(2, 8, 3), (2, 2, 6, 6)),
    ],
)
def test_convolutions_of_any_dimension_may_have_adapters(layer, shape):
    network, inputs = conv_adapters(nn.Sequential(layer), after="0", std=1.0), torch.randn(shape)
    assert network(inputs).shape == layer(inputs).shape
    assert not torch.allclose(network(inputs), layer(inputs), atol=1e-2)


def test_a_module_that_does_not_tell_its_size_has_a_bottleneck_of_the_given_width():
    network = nn.Sequential(nn.Linear(2, 5), nn.ReLU()).double()
    assert bottleneck_adapters(network, after="1", width=5)[1].adapter.up.weight.dtype == torch.float64
    with pytest.raises(InvalidModel, match=r"ReLU does not tell the size of its output\. Give width"):
        bottleneck_adapters(network, after="1")


def test_an_adapter_of_a_sequential_is_attached_to_its_last_layer_once():
    plain = nn.Sequential(nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0)))
    network = bottleneck_adapters(plain, after=["1", "1.1"], hidden=2)
    assert layers_with(network) == {"1.1"}
    assert network[1][1].adapter.down.weight.shape == (2, 3)


def test_adapters_of_two_names_go_in_one_after_the_other():
    network = conv_adapters(conv_adapters(residual(), name="shared_adapter"), after="*.conv1")
    assert layers_with(network, "shared_adapter") == layers_with(conv_adapters(residual()))
    assert layers_with(network) == {"blocks.0.conv1", "blocks.1.conv1"}
    assert not adapters()(network) & adapters("shared_adapter")(network)
    assert head()(network) == {"head.weight", "head.bias"}
