"""The multi-layer perceptron: counts, shapes, its two parts."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from plures.core.errors import InvalidModel, InvalidSplit
from plures.models import MODELS, mlp
from plures.parts import head, split


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("classes", [2, 5, 10, 55])
def test_the_network_of_the_pflego_papers_has_157000_shared_values_and_201_per_class(classes):
    # METHODS 0.7: 784 * 200 + 200 = 157,000 in the body; K * (200 + 1) in the head.
    model = mlp(shape=(784,), hidden=(200,), classes=classes)
    assert count(model.body) == 157_000
    assert count(model.head) == 201 * classes
    assert count(model) == 157_000 + 201 * classes


def test_a_picture_counts_as_its_pixels():
    assert count(mlp(shape=(1, 28, 28), hidden=(200,), classes=2)) == 157_402


def test_the_default_is_the_small_network_of_the_demo():
    # 8 x 8 digits: 64 * 64 + 64, and 10 * 65.
    assert (count(mlp().body), count(mlp().head)) == (4_160, 650)
    assert mlp()(torch.zeros(3, 1, 8, 8)).shape == (3, 10)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.lists(st.integers(1, 6), max_size=3),
    st.integers(1, 7),
    st.integers(1, 4),
)
@settings(deadline=None, max_examples=30)
def test_it_maps_examples_of_any_shape_to_classes_and_its_head_is_its_last_layer(shape, hidden, classes, batch):
    model = mlp(shape=shape, hidden=hidden, classes=classes)
    assert model(torch.zeros(batch, *shape)).shape == (batch, classes)
    assert head()(model) == {"head.weight", "head.bias"}
    widths = [torch.Size(shape).numel(), *hidden, classes]
    assert count(model) == sum((a + 1) * b for a, b in pairwise(widths))


def test_hidden_layers_are_followed_by_relu_and_the_head_by_nothing():
    model = mlp(shape=(2,), hidden=(2,), classes=1)
    with torch.no_grad():
        for layer, weight in ((model.body[1], [[1.0, 0.0], [0.0, 1.0]]), (model.head, [[1.0, 1.0]])):
            layer.weight.copy_(torch.tensor(weight))
            layer.bias.zero_()
    # relu(3), relu(-5) -> 3 + 0; relu(-1), relu(-2) -> 0.
    assert model(torch.tensor([[3.0, -5.0], [-1.0, -2.0]])).tolist() == [[3.0], [0.0]]
    model.head.bias.data.fill_(-4.0)
    assert model(torch.tensor([[3.0, -5.0]])).item() == -1.0


def test_without_hidden_layers_it_is_a_linear_model():
    model = mlp(shape=(4,), hidden=(), classes=3)
    assert count(model) == 15
    assert list(dict(model.named_parameters())) == ["head.weight", "head.bias"]


def test_batch_norm_adds_two_values_per_unit_and_asks_for_a_policy():
    model = mlp(shape=(4,), hidden=(3, 5), classes=2, batch_norm=True)
    assert count(model) == count(mlp(shape=(4,), hidden=(3, 5), classes=2)) + 2 * (3 + 5)
    assert sum(isinstance(layer, nn.BatchNorm1d) for layer in model.modules()) == 2
    with pytest.raises(InvalidSplit, match="running statistics"):
        split().resolve(model)


@pytest.mark.parametrize("wrong", [{"classes": 0}, {"hidden": (3, 0)}, {"shape": (1, 0, 2)}, {"classes": -1}])
def test_sizes_below_one_are_an_error(wrong):
    with pytest.raises(InvalidModel, match="at least 1"):
        mlp(**wrong)


def test_it_is_found_by_name():
    assert MODELS["mlp"] is mlp
