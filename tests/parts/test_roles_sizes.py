"""Parts of the networks of FedAlt's paper have the sizes that it prints."""

import pytest

from plures.models import resnet8_gn, resnet18_gn, transformer
from plures.parts import (
    adapters,
    adapters_and_norms,
    bottleneck_adapters,
    conv_adapters,
    first_block,
    input_layer,
    last_block,
    norms,
    output_layer,
)
from tests.parts.networks import count


def emnist():
    return resnet18_gn(shape=(1, 28, 28), classes=62, groups="by_width")


def landmarks():
    return resnet18_gn(shape=(3, 224, 224), classes=2028, groups="by_width", stem="large")


# Sizes of the networks of FedAlt's paper (METHODS 0.7 and 2.8)


@pytest.mark.parametrize(
    ("make", "selector", "size"),
    [
        # A stem of 64 filters 3 x 3 on one channel, or 7 x 7 on three, and its norm: 64 * 9 + 128; 64 * 3 * 49 + 128.
        (emnist, input_layer, 704),
        (landmarks, input_layer, 9_536),
        # The last layer on 512 features: 62 * 513; 2,028 * 513.
        (emnist, output_layer, 31_806),
        (landmarks, output_layer, 1_040_364),
        # Four projections of 256^2, two layers 256 <-> 1024 with biases, two norms of 2 * 256:
        # 262,144 + 525,568 + 1,024.
        (transformer, first_block, 788_736),
        (transformer, last_block, 788_736),
    ],
)
def test_parts_of_the_papers_networks_have_their_sizes(make, selector, size):
    model = make()
    assert count(model, selector()(model)) == size


def test_adapters_of_the_papers_resnet_have_1408128_values_with_the_norms():
    model = conv_adapters(emnist())
    own, both = adapters()(model), adapters_and_norms()(model)
    convolutions = {name for name in own if name.endswith("conv.weight")}
    # Four convolutions of each width C in (64, 128, 256, 512): C^2 for a 1 x 1 convolution, 2 C for a norm.
    assert count(model, convolutions) == 4 * (64**2 + 128**2 + 256**2 + 512**2) == 1_392_640
    assert count(model, own - convolutions) == 4 * 2 * (64 + 128 + 256 + 512) == 7_680
    # The network's own: as many norms in blocks, and that of the stem; the three in shortcuts stay shared.
    assert count(model, both - own) == 7_680 + 2 * 64 == 7_808
    assert count(model, both) == 1_408_128
    assert count(model, norms()(model)) == 7_808 + 2 * (128 + 256 + 512)


def test_the_adapters_of_the_papers_other_resnet_are_as_many():
    model = conv_adapters(landmarks())
    assert count(model, adapters_and_norms()(model)) == 1_408_128


def test_adapters_of_the_papers_transformer_have_71808_values_with_the_norms():
    model = bottleneck_adapters(transformer())
    own, both = adapters()(model), adapters_and_norms()(model)
    # Two in each of four blocks: 256 * 16 + 16 down, 16 * 256 + 256 up. Norms: two of 2 * 256 in each block.
    assert count(model, own) == 8 * (4_112 + 4_352) == 67_712
    assert count(model, both - own) == 8 * 512 == 4_096
    assert count(model, both) == 71_808


def test_adapters_of_the_small_resnet_have_11680_values_with_the_norms():
    model = conv_adapters(resnet8_gn())
    own, both = adapters()(model), adapters_and_norms()(model)
    # Two convolutions of each width in (16, 32, 64).
    assert count(model, own) == 2 * (16**2 + 32**2 + 64**2) + 2 * 2 * (16 + 32 + 64) == 10_752 + 448
    assert count(model, both - own) == 448 + 2 * 16 == 480
    assert count(model, both) == 11_680
