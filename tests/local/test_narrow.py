"""Narrower networks in training: which classes a client has, and what of the output layer it sends."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from plures.core.types import Batch
from plures.local import sgd, steps
from plures.local.widths import own_classes, own_logits
from plures.methods import heterofl
from tests.helpers.methods import Population, network, play


@pytest.mark.parametrize(
    ("targets", "count", "own"),
    [
        ([2, 0, 2], 4, [True, False, True, False]),
        ([[1, 0], [0, 1]], 3, [True, True, False]),
        ([-100, 1], 3, [False, True, False]),  # torch's losses pass by -100
        ([], 2, [False, False]),
    ],
)
def test_own_classes_are_those_among_the_targets(targets, count, own):
    assert own_classes(torch.tensor(targets, dtype=torch.int64), count).tolist() == own


def test_real_numbers_and_a_single_output_are_no_choice_of_classes():
    assert own_classes(torch.ones(3), 4) is None
    assert own_classes(torch.ones(3, dtype=torch.int64), 1) is None
    output = torch.ones(3, 1)
    assert own_logits(output, torch.ones(3, dtype=torch.int64)) is output
    flat = torch.ones(3)
    assert own_logits(flat, torch.ones(3, dtype=torch.int64)) is flat


def test_logits_of_other_classes_are_zero_and_have_no_gradient():
    output = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    seen = own_logits(output, torch.tensor([0, 2]))
    assert seen.tolist() == [[1.0, 0.0, 3.0], [4.0, 0.0, 6.0]]
    seen.sum().backward()
    assert output.grad.tolist() == [[1.0, 0.0, 1.0]] * 2


def test_classes_are_the_second_dimension_of_texts_and_pictures():
    """Outputs of shape (examples, words, time); no text has word 1."""
    seen = own_logits(torch.ones(2, 3, 4), torch.tensor([[0, 2, 0, 2], [2, 2, 2, 0]]))
    assert seen.sum(dim=(0, 2)).tolist() == [8.0, 0.0, 8.0]


def labelled_points():
    """Four pictures of 2 x 2 points; each point is of class 0 or 2 of three."""
    targets = torch.tensor([[[0, 2], [2, 2]], [[0, 0], [2, 0]]]).repeat(2, 1, 1)
    return Population([Batch(torch.linspace(-1, 1, 16, dtype=torch.float64).view(4, 1, 2, 2), targets)])


def uploaded(output):
    """What a client of width 0.5 uploads that labels the points of pictures: its held coordinates of each parameter."""
    module = network(lambda: nn.Sequential(nn.Conv2d(1, 4, 1), nn.Tanh(), output))
    method = heterofl(width=0.5, budget=steps(2), lr=sgd(0.3, weight_decay=0.1))
    ((_, result),) = play(method, 1, population=labelled_points(), module=module).results
    for name, value in result.upload.values.items():
        assert torch.equal(value != 0, result.upload.held[name]), name
    return result.upload.held


def test_of_a_convolution_that_is_the_output_layer_the_rows_of_own_classes_are_sent():
    """Two of four channels, and the filters 0 and 2 of three."""
    held = uploaded(nn.Conv2d(4, 3, 1))
    assert held["0.bias"].tolist() == [True, True, False, False]
    assert held["2.weight"].flatten(1).tolist() == [[True, True, False, False], [False] * 4, [True, True, False, False]]
    assert held["2.bias"].tolist() == [True, False, True]


def test_the_rows_of_a_transposed_convolution_are_inputs_and_all_classes_are_sent():
    held = uploaded(nn.ConvTranspose2d(4, 3, 1))
    assert held["2.weight"].flatten(1).tolist() == [[True] * 3] * 2 + [[False] * 3] * 2
    assert held["2.bias"].all()
