"""Densities of sparse networks: ERK with the reference values of FedSpa's networks, uniform, and whole counts."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig
from plures.models import lenet5, resnet18_gn, vgg11_gn
from plures.parts.densities import DENSITIES, counts, epsilon, erk, uniform

SHAPES = st.lists(st.lists(st.integers(1, 40), max_size=4), min_size=1, max_size=8).map(
    lambda shapes: {f"tensor{place}": tuple(shape) for place, shape in enumerate(shapes)}
)
DENSITY = st.floats(1e-3, 1.0)


def shapes_of(module):
    return {name: tuple(value.shape) for name, value in module.named_parameters()}


def total(shapes):
    return sum(prod(shape) for shape in shapes.values())


def sparse(densities):
    """Those below 1, rounded as METHODS 2.21 prints them."""
    return {name: round(density, 4) for name, density in densities.items() if density < 1.0}


# The networks of FedSpa's paper at density 0.5 (METHODS 2.21)


def test_half_of_lenet5_has_the_densities_of_the_reference():
    shapes = shapes_of(lenet5(classes=26))
    # First convolution, head and biases are dense; eps shares what they leave of 219,548 entries.
    dense = 20 * 25 + 20 + 50 + 500 + 500 * 26 + 26
    raw = (50 + 20 + 5 + 5) + (500 + 800)
    assert (dense, raw) == (14_096, 1_380)
    assert epsilon(shapes, 0.5) == pytest.approx((439_096 / 2 - dense) / raw, rel=1e-14)
    assert round(epsilon(shapes, 0.5), 3) == 148.878
    assert sparse(erk(shapes, 0.5)) == {"body.3.weight": 0.4764, "body.7.weight": 0.4839}


def test_half_of_vgg11_has_the_densities_of_the_reference():
    shapes = shapes_of(vgg11_gn(classes=10))
    found = erk(shapes, 0.5)
    assert round(epsilon(shapes, 0.5), 3) == 965.724
    convolutions = [round(found[name], 4) for name, shape in shapes.items() if len(shape) == 4]
    assert convolutions == [1.0, 1.0, 1.0, 0.8481, 0.6336, 0.4216, 0.4216, 0.4216]
    assert all(found[name] == 1.0 for name, shape in shapes.items() if len(shape) < 4)


def test_half_of_resnet18_has_the_densities_of_the_reference():
    shapes = shapes_of(resnet18_gn(classes=100))
    assert round(epsilon(shapes, 0.5), 3) == 815.235
    assert sparse(erk(shapes, 0.5)) == {
        "blocks.4.conv2.weight": 0.716,
        "blocks.5.conv1.weight": 0.716,
        "blocks.5.conv2.weight": 0.716,
        "blocks.6.conv1.weight": 0.5349,
        "blocks.6.conv2.weight": 0.3559,
        "blocks.7.conv1.weight": 0.3559,
        "blocks.7.conv2.weight": 0.3559,
    }


# Properties


def test_a_density_is_the_factor_times_sum_over_product_of_the_shape():
    shapes = {"conv": (50, 20, 5, 5), "linear": (500, 800), "bias": (50,)}
    found, factor = erk(shapes, 0.3), epsilon(shapes, 0.3)
    assert found["bias"] == 1.0
    assert found["conv"] == pytest.approx(factor * (50 + 20 + 5 + 5) / (50 * 20 * 5 * 5))
    assert found["linear"] == pytest.approx(factor * (500 + 800) / (500 * 800))


def test_scale_zero_gives_every_tensor_the_same_density():
    found = erk({"conv": (50, 20, 5, 5), "linear": (500, 800), "bias": (50,)}, 0.3, scale=0.0)
    assert all(density == pytest.approx(0.3, rel=1e-12) for density in found.values())


def test_tensors_of_one_dimension_and_of_none_are_the_first_to_be_dense():
    found = erk({"weight": (100, 100), "bias": (100,), "temperature": ()}, 0.1)
    assert found["bias"] == found["temperature"] == 1.0
    assert found["weight"] == pytest.approx((0.1 * 10_101 - 101) / 10_000)


def test_below_the_size_of_the_small_tensors_even_they_are_not_dense():
    # 0.005 of 10,100 entries are 50.5; raw sizes are 200 for the weight and 100 for the bias.
    found = erk({"weight": (100, 100), "bias": (100,)}, 0.005)
    assert found == pytest.approx({"weight": 50.5 / 300 * 0.02, "bias": 50.5 / 300})


def test_tensors_without_entries_do_not_matter():
    assert erk({"weight": (10, 10), "empty": (0, 3)}, 0.5)["weight"] == pytest.approx(0.5)


@given(SHAPES, DENSITY)
def test_erk_keeps_the_given_share_of_all_entries(shapes, density):
    found = erk(shapes, density)
    assert all(0.0 < value <= 1.0 for value in found.values())
    kept = sum(found[name] * prod(shape) for name, shape in shapes.items())
    assert kept == pytest.approx(density * total(shapes), rel=1e-9)


@given(SHAPES, DENSITY, DENSITY)
def test_no_tensor_gets_sparser_as_the_density_grows(shapes, one, other):
    less, more = (erk(shapes, density) for density in sorted([one, other]))
    assert all(less[name] <= more[name] * (1 + 1e-12) for name in shapes)


@pytest.mark.parametrize("rule", DENSITIES.values(), ids=DENSITIES)
def test_density_one_keeps_everything(rule):
    shapes = shapes_of(lenet5())
    found = rule(shapes, 1.0)
    assert set(found.values()) == {1.0}
    assert counts(shapes, found) == {name: prod(shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("rule", DENSITIES.values(), ids=DENSITIES)
@pytest.mark.parametrize("density", [0.0, -0.1, 1.1, float("nan"), float("inf")])
def test_a_density_that_is_none_is_refused(rule, density):
    with pytest.raises(InvalidConfig, match="above 0 and at most 1, not"):
        rule({"weight": (2, 3)}, density)


def test_nothing_to_share_a_density_among_is_refused():
    with pytest.raises(InvalidConfig, match="Give the shapes of a network"):
        erk({}, 0.5)


# Whole numbers of entries


def test_counts_are_rounded_down_but_not_for_errors_of_floating_point():
    assert 0.29 * 100 < 29  # 28.999999999999996
    shapes = {"a": (100,), "b": (10, 10), "c": (7,)}
    assert counts(shapes, uniform(shapes, 0.29)) == {"a": 29, "b": 29, "c": 2}


def test_a_tensor_of_which_nothing_would_be_left_keeps_one_entry():
    shapes = {"weight": (100, 10), "bias": (10,), "scale": (10,)}
    # 0.05 of 1,020 entries are 51: 50 for the weight and half an entry each for the others, which makes 1 too many.
    assert counts(shapes, uniform(shapes, 0.05)) == {"weight": 49, "bias": 1, "scale": 1}


def test_fewer_entries_than_tensors_are_refused():
    shapes = {"weight": (10, 10), "bias": (10,)}
    with pytest.raises(InvalidConfig, match="keep 1 entries in all, and each of 2 tensors needs one"):
        counts(shapes, uniform(shapes, 0.01))


def test_tensors_without_entries_keep_none():
    assert counts({"weight": (10,), "empty": (0,)}, {"weight": 0.5, "empty": 0.5}) == {"weight": 5, "empty": 0}


@given(SHAPES, DENSITY, st.sampled_from(sorted(DENSITIES)))
def test_counts_never_exceed_the_share_and_fall_short_of_it_by_less_than_one_for_each_tensor(shapes, density, rule):
    if density * total(shapes) < len(shapes):
        density = 1.0
    kept = counts(shapes, DENSITIES[rule](shapes, density))
    assert all(1 <= kept[name] <= prod(shape) for name, shape in shapes.items())
    assert density * total(shapes) - len(shapes) < sum(kept.values()) <= density * total(shapes) * (1 + 1e-9)
