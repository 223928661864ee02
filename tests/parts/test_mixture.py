"""A mixture of networks: its output is the logarithm of mixed probabilities, or mixed values."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.core.networks import Bare, no_example
from plures.core.seeds import global_draws
from plures.parts import all_shared, split
from plures.parts.mixture import APART, Mixture, mixing_shares, mixture_of


class Fixed(nn.Module):
    """Gives the same logits for every input."""

    def __init__(self, *logits: float) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits, dtype=torch.float64))

    def forward(self, inputs):
        return self.logits.expand(len(inputs), -1)


class Sequences(nn.Module):
    """Logits of 5 tokens at each of 4 places: (examples, tokens, places)."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.randn(5, 4, dtype=torch.float64))

    def forward(self, inputs):
        return self.logits.expand(len(inputs), 5, 4)


def mixture(*components, shares=None, **options):
    mixed = Mixture(components, **options)
    if shares is not None:
        with torch.no_grad():
            mixed.mixing.copy_(torch.tensor(shares, dtype=torch.float64))
    return mixed


ONE = torch.zeros(1, 1)


def test_shares_start_uniform_in_the_precision_of_the_network():
    mixed = mixture(Fixed(1.0, 0.0), Fixed(0.0, 1.0), Fixed(2.0, 2.0))
    assert mixed.mixing.tolist() == [1 / 3] * 3
    assert mixed.mixing.dtype == torch.float64
    assert {name for name, _ in mixed.named_parameters()} == {"mixing", *(f"components.{m}.logits" for m in range(3))}


def test_its_output_is_the_logarithm_of_mixed_probabilities_by_hand():
    """softmax(log 3, 0) = (3/4, 1/4), softmax(0, log 4) = (1/5, 4/5); 0.4 and 0.6 of them are 0.42 and 0.58."""
    mixed = mixture(Fixed(math.log(3), 0.0), Fixed(0.0, math.log(4)), shares=[0.4, 0.6])
    assert mixed(ONE).exp()[0].tolist() == pytest.approx([0.42, 0.58], rel=1e-12)
    for target, likelihood in enumerate([0.42, 0.58]):
        loss = F.cross_entropy(mixed(ONE), torch.tensor([target]))
        assert loss.item() == pytest.approx(-math.log(likelihood), rel=1e-12)


def test_the_class_is_that_of_the_largest_mixed_probability_not_of_mixed_logits():
    """Logits 0.4 * 10 - 0.6 * 2 = 2.8 for class 0; but its probability is 0.4 * 1 + 0.6 / (1 + e^2) = 0.47."""
    mixed = mixture(Fixed(10.0, 0.0), Fixed(0.0, 2.0), shares=[0.4, 0.6])
    logits = sum(share * network(ONE) for share, network in zip([0.4, 0.6], mixed.components, strict=True))
    assert int(logits.argmax(dim=1)) == 0
    assert int(mixed(ONE).argmax(dim=1)) == 1
    assert mixed(ONE).exp()[0, 0].item() == pytest.approx(0.4 + 0.6 / (1 + math.e**2), rel=1e-4)


def test_a_share_of_zero_is_safe_in_value_and_in_gradient():
    mixed = mixture(Fixed(1.0, 0.0), Fixed(0.0, 3.0), shares=[0.0, 1.0])
    assert torch.allclose(mixed(ONE), F.log_softmax(mixed.components[1](ONE), dim=1), rtol=1e-12)
    F.cross_entropy(mixed(ONE), torch.tensor([0])).backward()
    grads = {name: value.grad for name, value in mixed.named_parameters()}
    assert all(grad.isfinite().all() for grad in grads.values())
    assert not grads["components.0.logits"].abs().max() > 1e-300
    # d/dz of -log softmax(0, 3)_0 is (p_0 - 1, p_1), p_1 = 1 / (1 + e^-3).
    p = 1 / (1 + math.e**-3)
    assert grads["components.1.logits"].tolist() == pytest.approx([-p, p], rel=1e-12)


def test_far_logits_neither_overflow_nor_vanish():
    """Class 1 has probability e^-1000 under both, which no float holds; its logarithm is -1000."""
    mixed = mixture(Fixed(1000.0, 0.0), Fixed(1000.0, 0.0))
    assert mixed(ONE)[0].tolist() == pytest.approx([0.0, -1000.0])


def test_classes_are_the_second_dimension_so_that_every_token_has_its_own_mixture():
    with global_draws(0, "test"):
        mixed = mixture(Sequences(), Sequences(), shares=[0.3, 0.7])
    output = mixed(torch.zeros(6, 1))
    assert output.shape == (6, 5, 4)
    expected = sum(
        share * torch.softmax(part.logits, dim=0) for share, part in zip([0.3, 0.7], mixed.components, strict=True)
    )
    assert torch.allclose(output.exp(), expected.expand(6, 5, 4), rtol=1e-12)
    assert torch.allclose(output.exp().sum(dim=1), torch.ones(6, 4, dtype=torch.float64), rtol=1e-12)


def test_values_are_mixed_as_they_are():
    """0.25 * 4 + 0.75 * 8 = 7."""
    mixed = mixture(Fixed(4.0), Fixed(8.0), shares=[0.25, 0.75], outputs="values")
    assert mixed(ONE).tolist() == [[7.0]]


def test_asked_for_it_a_mixture_tells_the_outputs_of_its_components():
    mixed = mixture(Fixed(4.0, 1.0), Fixed(8.0, 2.0), outputs="values")
    assert mixed(ONE, APART)[APART].tolist() == [[[4.0, 1.0]], [[8.0, 2.0]]]


def test_outputs_without_classes_are_refused():
    class Flat(Fixed):
        def forward(self, inputs):
            return self.logits.expand(len(inputs))

    with pytest.raises(
        InvalidModel, match=r"of shape \(examples, classes, \.\.\.\), but its networks give shape \(1,\)"
    ):
        mixture(Flat(1.0), Flat(2.0))(ONE)
    assert mixture(Flat(1.0), Flat(2.0), outputs="values")(ONE).tolist() == [1.5]


def test_the_shares_are_a_part_of_their_own_and_other_networks_have_none():
    division = split(all_shared(), mixing=mixing_shares())
    mixed = mixture(Fixed(1.0), Fixed(2.0))
    assert division.resolve(mixed) == {"mixing": "mixing", **{f"components.{m}.logits": "shared" for m in (0, 1)}}
    assert division.resolve(Fixed(1.0)) == {"logits": "shared"}


# How it is made


def bare(module, another):
    return Bare(module=module, another=another, example=no_example)


def test_the_first_component_is_the_network_itself_and_the_others_are_numbered():
    first, asked = Fixed(0.0, 1.0), []

    def another(number):
        asked.append(number)
        return Fixed(float(number), 2.0)

    mixed = mixture_of(3, "classes")(bare(first, another))
    assert mixed.components[0] is first
    assert asked == [1, 2]
    assert [network.logits[0].item() for network in mixed.components] == [0.0, 1.0, 2.0]
    assert len(mixture_of(1, "classes")(bare(first, another)).components) == 1
    assert asked == [1, 2]


@pytest.mark.parametrize(("values", "pair"), [([5.0, 7.0], "0 and 1"), ([6.0, 6.0], "1 and 2")])
def test_components_that_start_equal_are_refused(values, pair):
    with pytest.raises(
        InvalidModel, match=rf"Components {pair} of the mixture start with the same values.*Give a func"
    ):
        mixture_of(3, "classes")(bare(Fixed(5.0), lambda number: Fixed(values[number - 1])))


def test_a_function_that_gives_the_same_network_each_time_is_refused():
    module = Fixed(5.0)
    with pytest.raises(InvalidModel, match="Components 0 and 1"):
        mixture_of(2, "classes")(bare(module, lambda number: module))
