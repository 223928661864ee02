"""Convolutional networks and logistic regression: counts by layer, output shapes, inputs that do not fit."""

from math import ceil

import pytest
import torch
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.models import cnn_1d, cnn_o, cnn_p, leaf_cnn, lenet5, lenet32, logistic, vgg11_gn
from plures.models.classifier import pooled
from plures.models.cnn_pflego import SamePool
from plures.parts import representation
from tests.models.helpers import count, made, pictures


def layer_counts(module):
    """Values in each layer of the body that has any, in order."""
    return [size for size in map(count, module.body) if size]


# Counts. A convolution has (k * k * in + 1) * out values, a linear layer (in + 1) * out, a norm 2 * width.


@pytest.mark.parametrize("classes", [2, 5, 10])
def test_cnn_p_has_1754496_values_in_its_body_and_193_per_class(classes):
    # 5x5 convolutions 3 -> 64 and 64 -> 64; 32 -> 16 -> 8 places a side, so 64 * 8 * 8 = 4,096 -> 384 -> 192.
    model = cnn_p(classes=classes)
    assert layer_counts(model) == [4_864, 102_464, 1_573_248, 73_920]
    assert (count(model.body), count(model.head)) == (1_754_496, 193 * classes)


def test_cnn_p_takes_the_sizes_of_a_small_experiment():
    # 3 -> 16: 76 * 16; 16 -> 32: 401 * 32; 32 * 64 = 2,048 -> 128; 128 -> 64.
    model = cnn_p(filters=[16, 32], fc=[128, 64], classes=10)
    assert layer_counts(model) == [1_216, 12_832, 262_272, 8_256]
    assert count(model.head) == 650


@pytest.mark.parametrize("classes", [14, 55])
def test_cnn_o_has_111424_values_in_its_body_and_65_per_class(classes):
    # 3x3 convolutions 1 -> 64, then 64 -> 64 three times; 28 -> 14 -> 7 -> 3 -> 1 places a side leave 64 features.
    model = cnn_o(classes=classes)
    assert layer_counts(model) == [640, 36_928, 36_928, 36_928]
    assert (count(model.body), count(model.head)) == (111_424, 65 * classes)


def test_cnn_o_takes_the_sizes_of_a_small_experiment():
    # 1 -> 32: 10 * 32; 32 -> 32: 289 * 32; 32 features.
    model = cnn_o(filters=32, classes=14)
    assert layer_counts(model) == [320, 9_248, 9_248, 9_248]
    assert count(model.head) == 33 * 14
    assert count(cnn_o(filters=32, fc=(16,)).body) == 28_064 + 33 * 16


@pytest.mark.parametrize(("classes", "total"), [(10, 2_171_786), (62, 2_278_334)])
def test_leaf_cnn_has_the_parameters_of_the_pfedgate_paper(classes, total):
    # 28 -> 24 -> 12 -> 8 -> 4 places a side: 64 * 16 = 1,024 -> 2,048.
    model = leaf_cnn(classes=classes)
    assert layer_counts(model) == [832, 51_264, 2_099_200]
    assert count(model) == total == 2_151_296 + 2_049 * classes


def test_leaf_cnn_for_cifar_100_has_3537444_parameters():
    # 32 -> 28 -> 14 -> 10 -> 5: 64 * 25 = 1,600 -> 2,048; 100 * 2,049 = 204,900.
    model = leaf_cnn(shape=(3, 32, 32), classes=100)
    assert layer_counts(model) == [2_432, 51_264, 3_278_848]
    assert count(model) == 3_537_444


def test_lenet32_has_256830_parameters():
    # 1,600 -> 120 -> 84 -> 10.
    model = lenet32()
    assert layer_counts(model) == [2_432, 51_264, 192_120, 10_164]
    assert (count(model.head), count(model)) == (850, 256_830)


def test_lenet32_takes_the_sizes_of_the_pfedgate_scripts_for_cifar_100():
    # 2,432 + 51,264 + 1,601 * 1,920 + 1,921 * 504 + 505 * 100.
    assert count(lenet32(fc=(1920, 504), classes=100)) == 4_146_300


@pytest.mark.parametrize(("classes", "total"), [(26, 439_096), (10, 431_080)])
def test_lenet5_has_the_parameters_of_the_fedspa_paper(classes, total):
    # 1 -> 20, 20 -> 50; 50 * 16 = 800 -> 500.
    model = lenet5(classes=classes)
    assert layer_counts(model) == [520, 25_050, 400_500]
    assert count(model) == total == 426_070 + 501 * classes


def test_vgg11_gn_has_9231114_parameters():
    # Convolutions 3 -> 64 -> 128 -> 256 -> 256 -> 512 -> 512 -> 512 -> 512, each followed by its norm.
    convolutions = [1_792, 73_856, 295_168, 590_080, 1_180_160, 2_359_808, 2_359_808, 2_359_808]
    norms = [2 * width for width in (64, 128, 256, 256, 512, 512, 512, 512)]
    model = vgg11_gn()
    assert layer_counts(model) == [size for pair in zip(convolutions, norms, strict=True) for size in pair]
    assert (count(model.head), count(model)) == (5_130, 9_231_114)


def test_cnn_1d_has_249766_parameters_for_six_sensors():
    # 6 -> 32: 31 * 32; 32 -> 64: 161 * 64; 128 -> 124 -> 62 -> 58 -> 29 places: 64 * 29 = 1,856 -> 128.
    model = cnn_1d()
    assert layer_counts(model) == [992, 10_304, 237_696]
    assert (count(model.head), count(model)) == (774, 249_766)


def test_logistic_regression_is_a_head_alone():
    model = logistic(shape=(1, 28, 28), classes=10)
    assert list(dict(model.named_parameters())) == ["head.weight", "head.bias"]
    assert count(model) == 7_850


def test_logistic_with_one_class_is_linear_regression():
    model = logistic(shape=(2,), classes=1)
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([[2.0, -1.0]]))
        model.head.bias.fill_(0.5)
    # 2 * 3 - 4 + 0.5; 2 * 0 - 1 + 0.5.
    assert model(torch.tensor([[3.0, 4.0], [0.0, 1.0]])).tolist() == [[2.5], [-0.5]]


# Shapes


@pytest.mark.parametrize(
    ("make", "shape", "classes"),
    [
        (cnn_p, (3, 32, 32), 10),
        (cnn_p, (1, 28, 27), 4),
        (cnn_p, (2, 1, 1), 4),
        (cnn_o, (1, 28, 28), 55),
        (cnn_o, (3, 16, 33), 7),
        (leaf_cnn, (1, 28, 28), 62),
        (leaf_cnn, (1, 16, 16), 3),
        (lenet32, (3, 32, 32), 10),
        (lenet32, (3, 20, 33), 5),
        (lenet5, (1, 28, 28), 26),
        (vgg11_gn, (3, 32, 32), 10),
        (vgg11_gn, (1, 64, 32), 3),
        (cnn_1d, (6, 128), 6),
        (cnn_1d, (1, 16), 2),
        (logistic, (3, 2, 2), 4),
    ],
)
def test_a_picture_or_series_becomes_a_row_of_classes(make, shape, classes):
    model = made(make, shape=shape, classes=classes)
    output = model(pictures(2, *shape))
    assert output.shape == (2, classes)
    assert output.isfinite().all()


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (cnn_p, (784,), r"cnn_p takes examples of shape \(channels, height, width\), each at least 1, not \(784,\)"),
        (cnn_p, (3, 0, 32), "each at least 1"),
        (cnn_o, (1, 15, 28), "cnn_o needs examples of at least 16 along every side, not 15 x 28"),
        (leaf_cnn, (28, 28), "leaf_cnn takes examples of shape"),
        (leaf_cnn, (1, 15, 15), "at least 16 along every side, not 15 x 15"),
        (lenet32, (3, 8, 8), "at least 16 along every side, not 8 x 8"),
        (lenet5, (1, 28, 12), "at least 16 along every side, not 28 x 12"),
        (vgg11_gn, (1, 28, 28), "at least 32 along every side, not 28 x 28"),
        (cnn_1d, (6, 1, 128), r"shape \(channels, time\)"),
        (cnn_1d, (6, 15), "at least 16 along every side, not 15"),
    ],
)
def test_an_input_of_another_form_or_too_small_is_refused(make, shape, message):
    with pytest.raises(InvalidModel, match=message):
        make(shape=shape)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (cnn_p, {"classes": 0}),
        (cnn_p, {"filters": (64, 0)}),
        (cnn_o, {"filters": 0}),
        (leaf_cnn, {"fc": (0,)}),
        (lenet5, {"classes": -1}),
        (vgg11_gn, {"groups": 0}),
        (cnn_1d, {"kernel": 0}),
        (logistic, {"shape": (0,)}),
    ],
)
def test_sizes_below_one_are_refused(make, options):
    with pytest.raises(InvalidModel, match=rf"{make.__name__} needs {next(iter(options))} of at least 1"):
        make(**options)


def test_all_wrong_sizes_are_told_at_once():
    with pytest.raises(InvalidModel) as caught:
        lenet32(classes=0, filters=(0,), fc=(3, -1))
    assert len(caught.value.problems) == 3


def test_vgg_wants_groups_that_divide_its_widths():
    with pytest.raises(InvalidModel, match="divides 64, not 48"):
        vgg11_gn(groups=48)


# What the layers compute


def same_pool_by_hand(line):
    """Windows of 3 at every second place, padded by JAX's rule: in all, just enough for ceil(n / 2) windows."""
    size = len(line)
    outputs = ceil(size / 2)
    before = max((outputs - 1) * 2 + 3 - size, 0) // 2
    return [max(line[max(2 * place - before, 0) : 2 * place - before + 3]) for place in range(outputs)]


@pytest.mark.parametrize("size", range(1, 10))
def test_the_pooling_of_cnn_p_is_that_of_jax_for_even_and_odd_sides(size):
    line = pictures(size, seed=size) - 3  # below zero, so that padding by zeros would show
    across, down = SamePool()(line.expand(1, 1, 2, size)), SamePool()(line[:, None].expand(1, 1, size, 2))
    assert across[0, 0].tolist() == [same_pool_by_hand(line.tolist())]
    assert down[0, 0, :, 0].tolist() == same_pool_by_hand(line.tolist())


def test_pooling_with_padding_on_both_sides_would_be_another_network():
    line = torch.tensor([0.0, 0.0, 1.0, 0.0]).expand(1, 1, 4, 4)
    assert SamePool()(line)[0, 0, 0].tolist() == [1.0, 1.0]
    assert F.max_pool2d(line, 3, 2, padding=1)[0, 0, 0].tolist() == [0.0, 1.0]


def test_a_channel_owns_neighbouring_inputs_of_the_first_linear_layer():
    """So that a channel can be cut from a convolution and from the linear layer behind it alike."""
    one, other = made(leaf_cnn, classes=3), made(leaf_cnn, classes=3)
    with torch.no_grad():
        one.body[3].weight[5] = 0
        one.body[3].bias[5] = 0
        other.body[7].weight[:, 5 * 16 : 6 * 16] = 0
    inputs = pictures(2, 1, 28, 28)
    torch.testing.assert_close(one(inputs), other(inputs))
    assert not torch.allclose(one(inputs), made(leaf_cnn, classes=3)(inputs))


def test_the_representation_is_the_convolutions_with_their_norms():
    # Of VGG all but the head; of LeNet all but the linear layers.
    assert count(vgg11_gn(), representation()(vgg11_gn())) == 9_231_114 - 5_130
    assert count(lenet32(), representation()(lenet32())) == 2_432 + 51_264


@pytest.mark.parametrize("pool", [torch.nn.MaxPool2d(2), SamePool()], ids=["apart", "overlapping"])
def test_pooling_before_the_relu_changes_no_bit_of_value_or_gradient(pool):
    # Of equal places both orders choose the first; where none is above zero, the ReLU passes no gradient in either.
    inputs = torch.randint(-2, 3, (4, 2, 9, 8), generator=torch.Generator().manual_seed(0)).float()
    convolution, found = torch.nn.Conv2d(2, 3, 3), []
    torch.nn.init.constant_(convolution.weight, 0.25)
    for layers in ([convolution, torch.nn.ReLU(), pool], pooled(convolution, pool)):
        convolution.zero_grad()
        outputs = torch.nn.Sequential(*layers)(inputs)
        (outputs * torch.arange(1.0, 1 + outputs.numel()).view_as(outputs)).sum().backward()
        found.append([outputs.detach(), *(value.grad.clone() for value in convolution.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert (found[0][0] == 0).any()
    assert found[0][1].any()
