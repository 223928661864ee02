"""Residual networks: the forms of the papers by their counts, their groups, their parts."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from plures.core.errors import InvalidModel
from plures.models import resnet8_gn, resnet18_gn
from plures.models.resnet import ResidualBlock
from plures.parts import adapters_and_norms, conv_adapters, input_layer
from tests.models.helpers import count, made, pictures

EMNIST = {"shape": (1, 28, 28), "classes": 62, "groups": "by_width"}
GLDV2 = {"shape": (3, 224, 224), "classes": 2028, "groups": "by_width", "stem": "large"}
CIFAR100 = {"shape": (3, 32, 32), "classes": 100, "groups": 32}


def block_count(inputs, outputs):
    """Two 3x3 convolutions without bias and their norms; where the width changes a 1x1 convolution and its norm."""
    return 9 * inputs * outputs + 9 * outputs**2 + 4 * outputs + (inputs != outputs) * (inputs + 2) * outputs


@pytest.mark.parametrize(
    ("options", "stem", "head", "total"),
    [
        # 3x3 on 3 channels: 27 * 64 + 128; 513 * 100.
        (CIFAR100, 1_856, 51_300, 11_220_132),
        # 3x3 on 1 channel: 9 * 64 + 128; 513 * 62.
        (EMNIST, 704, 31_806, 11_199_486),
        # 7x7 on 3 channels: 147 * 64 + 128; 513 * 2,028.
        (GLDV2, 9_536, 1_040_364, 12_216_876),
    ],
    ids=["cifar-100", "emnist", "gldv2"],
)
def test_resnet18_has_the_parameters_of_each_paper(options, stem, head, total):
    model = resnet18_gn(**options)
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [block_count(a, b) for a, b in pairwise(widths)]
    assert blocks == [73_984, 73_984, 230_144, 295_424, 919_040, 1_180_672, 3_673_088, 4_720_640]
    assert [count(block) for block in model.blocks] == blocks
    assert (count(model.stem), count(model.head)) == (stem, head)
    assert count(model) == total == stem + sum(blocks) + head


def test_the_default_is_that_of_the_fedspa_paper():
    assert count(resnet18_gn()) == 11_220_132


def test_resnet8_has_77754_parameters():
    # Stem 9 * 16 + 32; blocks 16 -> 16, 16 -> 32, 32 -> 64; head 65 * 10.
    model = resnet8_gn()
    assert [count(block) for block in model.blocks] == [4_672, 14_528, 57_728]
    assert [block_count(16, 16), block_count(16, 32), block_count(32, 64)] == [4_672, 14_528, 57_728]
    assert (count(model.stem), count(model.head), count(model)) == (176, 650, 77_754)


def groups_by_width(model):
    return {norm.num_channels: norm.num_groups for norm in model.modules() if isinstance(norm, nn.GroupNorm)}


def test_groups_by_width_are_those_of_the_fedalt_paper():
    assert groups_by_width(resnet18_gn(**EMNIST)) == {64: 8, 128: 8, 256: 16, 512: 32}
    assert groups_by_width(resnet8_gn()) == {16: 2, 32: 4, 64: 8}


def test_a_number_of_groups_is_that_of_every_norm():
    assert groups_by_width(resnet18_gn()) == dict.fromkeys((64, 128, 256, 512), 32)


def test_the_parts_of_the_fedalt_paper_have_its_counts():
    # Adapters in all 16 convolutions of blocks: 4 * (64^2 + 128^2 + 256^2 + 512^2) = 1,392,640, their norms
    # 4 * 2 * 960 = 7,680, the norms of blocks 7,680 and of the stem 128.
    for options, stem in ((EMNIST, 704), (GLDV2, 9_536)):
        model = conv_adapters(resnet18_gn(**options))
        assert count(model, adapters_and_norms()(model)) == 1_408_128
        assert count(model, input_layer()(model)) == stem


def test_the_adapters_of_resnet8_are_15_percent_of_it():
    # 2 * (16^2 + 32^2 + 64^2) = 10,752; their norms 2 * 2 * 112 = 448; the norms of blocks 448 and of the stem 32.
    model = conv_adapters(resnet8_gn())
    assert count(model, adapters_and_norms()(model)) == 10_752 + 448 + 480 == 11_680


@pytest.mark.parametrize(
    ("make", "options"),
    [(resnet8_gn, {}), (resnet8_gn, {"shape": (3, 5, 6)}), (resnet8_gn, {"stem": "large"}), (resnet18_gn, CIFAR100)],
)
def test_pictures_become_rows_of_classes(make, options):
    model = made(make, **options)
    shape = options.get("shape", (1, 28, 28))
    output = model(pictures(2, *shape))
    assert output.shape == (2, model.head.out_features)
    assert output.isfinite().all()


def test_sides_are_halved_where_the_width_grows_and_by_the_large_stem():
    shapes = []
    for stem in ("small", "large"):
        model = made(resnet8_gn, stem=stem)
        for block in model.blocks:
            block.register_forward_hook(lambda _, given, output: shapes.append(tuple(output.shape[1:])))
        model(pictures(1, 1, 32, 32))
    assert shapes == [(16, 32, 32), (32, 16, 16), (64, 8, 8), (16, 8, 8), (32, 4, 4), (64, 2, 2)]


def test_a_block_whose_convolutions_are_zero_passes_its_input_on():
    block = ResidualBlock(4, 4, 1, 2)
    nn.init.zeros_(block.conv2.weight)
    inputs = pictures(2, 4, 5, 5)
    assert torch.equal(block(inputs), inputs.relu())


def test_the_features_are_means_over_all_places():
    model = made(resnet8_gn, classes=64)
    with torch.no_grad():
        model.head.weight.copy_(torch.eye(64))
        model.head.bias.zero_()
    inputs = pictures(2, 1, 12, 12)
    features = model.blocks(model.stem(inputs).relu())
    torch.testing.assert_close(model(inputs), features.flatten(2).mean(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (784,)}, r"shape \(channels, height, width\)"),
        ({"groups": 3}, "divides every width: 3 does not 16"),
        ({"groups": 0}, "divides every width"),
        ({"groups": "by_depth"}, "by_width"),
        ({"stem": "smal"}, "no stem 'smal'. Did you mean 'small'"),
        ({"init": "pflegoo"}, "no initialisation 'pflegoo'"),
        ({"widths": ()}, "at least one width"),
        ({"widths": (16, 0)}, "widths of at least 1"),
        ({"classes": 0}, "classes of at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(InvalidModel, match=message):
        resnet8_gn(**options)


def test_other_widths_make_a_narrower_network():
    # Stem 9 * 8 + 16; 8 -> 8 and 8 -> 24; head 25 * 3.
    model = resnet8_gn(widths=(8, 24), classes=3)
    assert count(model) == 88 + block_count(8, 8) + block_count(8, 24) + 75
