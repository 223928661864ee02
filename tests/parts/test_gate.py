"""The gating layer against its formulas: a norm that mixes three, two heads, and what ablations leave out."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from plures.parts.gate import Gate, GateOptions, SwitchNorm
from tests.parts.networks import seeded

TIGHT = {"rtol": 1e-12, "atol": 1e-13}


def inputs(*shape, seed=0):
    """Channels and examples of different means and spreads."""
    draws = torch.Generator().manual_seed(seed)
    values = torch.randn(shape[0], shape[1], math.prod(shape[2:]), generator=draws, dtype=torch.float64)
    spread = torch.linspace(0.5, 2.0, shape[1], dtype=torch.float64)[:, None]
    return (values * spread + values[:, :1, :1]).reshape(shape)


def switch_norm(channels=3):
    """One with its own shares and scales."""
    norm = SwitchNorm(channels).double()
    with torch.no_grad():
        for number, value in enumerate(norm.parameters()):
            value.copy_(torch.linspace(-0.5, 1.5 + number, value.numel()))
    return norm


def mean_and_variance(values):
    centre = sum(values) / len(values)
    return centre, sum((value - centre) ** 2 for value in values) / len(values)


def by_hand(norm, x, batch):
    """Value by value; `batch` has mean and variance of each channel."""
    a, b = torch.softmax(norm.mean_mix, dim=0), torch.softmax(norm.variance_mix, dim=0)
    found = torch.empty_like(x)
    for n, c in itertools.product(range(x.shape[0]), range(x.shape[1])):
        kinds = [mean_and_variance(x[n, c].tolist()), mean_and_variance(x[n].flatten().tolist()), batch[c]]
        mean = sum(share * kind[0] for share, kind in zip(a, kinds, strict=True))
        variance = sum(share * kind[1] for share, kind in zip(b, kinds, strict=True))
        found[n, c] = norm.weight[c] * (x[n, c] - mean) / (variance + 1e-5) ** 0.5 + norm.bias[c]
    return found


def batch_statistics(x):
    return [mean_and_variance(x[:, c].flatten().tolist()) for c in range(x.shape[1])]


# The norm of the inputs


def test_in_training_it_mixes_the_statistics_of_instance_layer_and_batch():
    norm, x = switch_norm(), inputs(4, 3, 5)
    torch.testing.assert_close(norm(x), by_hand(norm, x, batch_statistics(x)), **TIGHT)


def test_running_statistics_start_at_zero_and_keep_nine_tenths_of_the_old_value():
    norm, first, second = switch_norm(), inputs(4, 3, 5), inputs(2, 3, 5, seed=1)
    assert norm.running_mean.tolist() == norm.running_variance.tolist() == [0.0] * 3
    norm(first)
    norm(second)
    one, two = (torch.tensor(batch_statistics(x), dtype=torch.float64).T for x in (first, second))
    wanted = 0.9 * (0.1 * one) + 0.1 * two
    torch.testing.assert_close(torch.stack([norm.running_mean, norm.running_variance]), wanted, **TIGHT)


def test_in_evaluation_it_uses_the_running_statistics_and_leaves_them():
    norm = switch_norm()
    norm(inputs(4, 3, 5))
    kept = {name: value.clone() for name, value in norm.named_buffers()}
    norm.eval()
    x = inputs(2, 3, 5, seed=1)
    statistics = list(zip(kept["running_mean"].tolist(), kept["running_variance"].tolist(), strict=True))
    torch.testing.assert_close(norm(x), by_hand(norm, x, statistics), **TIGHT)
    torch.testing.assert_close(norm(x)[1:], norm(x[1:]), **TIGHT)
    assert all(torch.equal(value, kept[name]) for name, value in norm.named_buffers())


def test_at_the_start_the_shares_are_equal_and_the_scale_is_one():
    norm = SwitchNorm(2)
    for mix in (norm.mean_mix, norm.variance_mix):
        assert torch.softmax(mix, dim=0).tolist() == pytest.approx([1 / 3] * 3)
    assert norm.weight.tolist() == [1.0, 1.0]
    assert norm.bias.tolist() == [0.0, 0.0]


def test_constant_inputs_give_finite_values_and_gradients():
    norm, x = switch_norm(), torch.full((2, 3, 4), 1e3, dtype=torch.float64, requires_grad=True)
    norm(x).sum().backward()
    assert x.grad.isfinite().all()
    assert all(value.grad.isfinite().all() for value in norm.parameters())


# The heads


def gate(shape=(3, 2, 2), blocks=5, **options):
    return seeded(Gate, shape, blocks, GateOptions(**options)).double()


def head_by_hand(head, x, *, post_norm=True, sigmoid=True):
    z = x @ head.linear.weight.T + head.linear.bias
    if post_norm:
        z = (z - z.mean(dim=0)) / (z.var(dim=0, unbiased=False) + 1e-5).sqrt() * head.norm.weight + head.norm.bias
    return 1 / (1 + torch.exp(-z)) if sigmoid else z


def changed(made):
    """With heads that differ, and a norm of its own."""
    with torch.no_grad():
        for number, value in enumerate(made.parameters()):
            value += 0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(number)).double()
    return made


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("post_norm", [True, False])
@pytest.mark.parametrize("sigmoid", [True, False])
def test_a_gate_is_norm_linear_norm_sigmoid_and_ablations_leave_out_what_they_say(pre_norm, post_norm, sigmoid):
    made, x = changed(gate(pre_norm=pre_norm, post_norm=post_norm, sigmoid=sigmoid)), inputs(4, 3, 2, 2)
    flat = x.flatten(2)
    if pre_norm:
        flat = by_hand(made.norm, flat, batch_statistics(flat))
    wanted = [head_by_hand(h, flat.flatten(1), post_norm=post_norm, sigmoid=sigmoid) for h in (made.weigh, made.rank)]
    torch.testing.assert_close(list(made(x)), wanted, **TIGHT)
    norms = [name for name in ("norm", "weigh.norm", "rank.norm") if list(made.get_submodule(name).parameters())]
    assert norms == ["norm"] * pre_norm + ["weigh.norm", "rank.norm"] * post_norm


def test_two_heads_begin_as_copies_and_then_go_their_own_ways():
    made, x = gate(), inputs(4, 3, 2, 2)
    weights, importance = made(x)
    assert torch.equal(weights, importance)
    assert made.weigh.state_dict().keys() == made.rank.state_dict().keys()
    weights[:, 0].square().sum().backward()
    assert made.weigh.linear.weight.grad.abs().max() > 0
    assert made.rank.linear.weight.grad is None
    with torch.no_grad():
        made.rank.linear.weight[0] += 1.0
    weights, importance = made(x)
    assert not torch.equal(weights, importance)


def test_one_head_serves_both():
    made, x = gate(heads=1), inputs(4, 3, 2, 2)
    weights, importance = made(x)
    assert importance is weights
    assert not [name for name, _ in made.named_parameters() if name.startswith("rank")]
    torch.testing.assert_close(weights, gate(heads=2)(x)[0], **TIGHT)


@pytest.mark.parametrize(
    ("shape", "blocks", "size"), [((1, 28, 28), 40, 31_480), ((3, 32, 32), 50, 153_750)], ids=["emnist", "cifar10"]
)
def test_a_head_has_as_many_parameters_as_the_paper_says(shape, blocks, size):
    """Inputs times blocks, a bias, and the batch norm's scale and shift: d_X * L + 3 L (METHODS 2.16)."""
    one, two = (Gate(shape, blocks, GateOptions(heads=heads)) for heads in (1, 2))
    norm = 2 * shape[0] + 6  # scale and shift of each channel, and two times three shares
    assert sum(value.numel() for value in one.parameters()) == norm + size
    assert sum(value.numel() for value in two.parameters()) == norm + 2 * size


@pytest.mark.parametrize(("shape", "channels"), [((6,), 1), ((2, 3), 2), ((3, 2, 2), 3)])
def test_inputs_of_any_shape_have_a_gate_and_a_row_of_a_table_is_one_channel(shape, channels):
    made = gate(shape=shape)
    assert len(made.norm.weight) == channels
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(4, *shape, generator=draws, dtype=torch.float64)
    weights, importance = made(x)
    assert weights.shape == importance.shape == (4, 5)
    normed = by_hand(made.norm, x.reshape(4, channels, -1), batch_statistics(x.reshape(4, channels, -1)))
    torch.testing.assert_close(weights, head_by_hand(made.weigh, normed.flatten(1)), **TIGHT)


def test_gates_lie_between_0_and_1_unless_the_sigmoid_is_left_out():
    x = 100 * inputs(8, 3, 2, 2)
    assert all(((value >= 0) & (value <= 1)).all() for value in gate(post_norm=False)(x))
    assert all(value.min() < 0 and value.max() > 1 for value in gate(post_norm=False, sigmoid=False, pre_norm=False)(x))
