"""A gated network: what is dropped is zero, gradients go straight through, and the capacity holds at every level."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call

from plures.core.errors import InvalidModel
from plures.parts.gate import GateOptions
from plures.parts.gated import GatedNetwork, GatedOptions
from tests.parts.gates import (
    NETWORKS,
    assert_same_function,
    examples,
    gated,
    gradients,
    plain,
)
from tests.parts.networks import seeded

names = pytest.mark.parametrize("name", NETWORKS)
cuts = pytest.mark.parametrize("cut", ["first", "equal", "rows"])
rules = pytest.mark.parametrize("dropped_learn", [True, False], ids=["paper", "authors"])


def whole(name="two layers", *, examples_given=4, dtype=torch.float64, capacity=0.5, **options):
    """A network with a gate that looks at its inputs, and the inputs."""
    inputs = examples(name, examples_given).to(dtype)
    made = seeded(GatedNetwork, plain(name).to(dtype), inputs[:1], GatedOptions(**options))
    made.capacity.fill_(capacity)
    if made.options.level == "client":
        made.mean_input.copy_(inputs.mean(dim=0, keepdim=True))
    return made, inputs


# What a forward pass sees


@names
@cuts
def test_dropped_blocks_are_exactly_zero_and_kept_ones_are_weights_times_their_gates(name, cut):
    network, inputs = plain(name), examples(name)
    made = gated(network, inputs, cut=cut, capacity=0.6)
    kept, weights = made.gates(inputs).kept[0], made.gate.weights[0]
    assert not kept.all()
    shown = made(inputs, "parameters")
    params = dict(network.named_parameters())
    assert shown.keys() == {f"network.{piece.name}" for piece in made.blocks.pieces}
    for piece in made.blocks.pieces:
        own = slice(piece.start, piece.stop)
        found, value = shown[f"network.{piece.name}"].flatten()[own], params[piece.name].flatten()[own]
        assert torch.equal(found, value * weights[piece.block] if kept[piece.block] else torch.zeros_like(value))
    seen = functional_call(network, {name.removeprefix("network."): value for name, value in shown.items()}, inputs)
    torch.testing.assert_close(made(inputs), seen, rtol=1e-12, atol=1e-14)


@rules
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_forward_pass_uses_the_choice_itself_however_far_off_importances_are(dropped_learn, dtype):
    """Without a sigmoid nothing bounds them: 1 - 1e20 + 1e20 is 0, and the block would be lost."""
    inputs = examples("two layers")
    made = gated(plain("two layers"), inputs, dropped_learn=dropped_learn)
    far = torch.tensor([1e20, -1e20, 3e7, -3e7, 1234.567, -0.001])
    importance = far[torch.arange(made.blocks.count) % len(far)]
    made = gated(plain("two layers"), inputs, dropped_learn=dropped_learn, importance=importance[None]).to(dtype)
    gates = made.gates(inputs.to(dtype))
    assert torch.equal(gates.effective, gates.weights * gates.kept)


@cuts
@pytest.mark.parametrize("level", ["batch", "sample", "client"])
@pytest.mark.parametrize("select", ["greedy", "exact"])
@pytest.mark.parametrize("capacity", [0.3, 0.55, 0.9])
def test_no_more_entries_than_the_capacity_are_not_zero(cut, level, select, capacity):
    least = 0.25 if cut == "first" else 0.2
    made, inputs = whole("conv2d", cut=cut, level=level, select=select, least=least, splits=5, capacity=capacity)
    total = sum(piece.stop - piece.start for piece in made.blocks.pieces)
    for scale in (1.0, 1e6):
        shown = made(scale * inputs, "parameters")
        used = sum(int(value.count_nonzero()) for value in shown.values())
        forced = made.blocks.costs()[list(made.blocks.forced)].sum()
        assert forced <= used <= capacity * total
    kept = made.gates(inputs * torch.nan).kept.double()
    assert (kept @ made.blocks.costs() <= capacity * total).all()


def test_the_choice_is_that_of_the_selection_asked_for():
    """One layer of 100 entries; the worths and costs are those of test_selection.py, where the two differ."""
    importance = torch.tensor([[0.0, 0.91, 0.94, 0.88, 0.31, 0.96]])
    layer, inputs = nn.Linear(100, 1, bias=False).double(), torch.zeros(2, 100).double()
    options = {"cut": {"weight": [10, 20, 20, 15, 10, 25]}, "least": 0.1, "importance": importance}
    assert gated(layer, inputs, **options).gates(inputs).kept.int().tolist() == [[1, 0, 0, 0, 1, 1]]
    assert gated(layer, inputs, select="exact", **options).gates(inputs).kept.int().tolist() == [[1, 1, 0, 1, 0, 0]]


# Gradients


def six(**options):
    """One unit of six weights in three blocks; the first is forced, and of the other two the last is kept."""
    layer = nn.Linear(6, 1, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]))
    inputs = torch.tensor([[1.0, -1.0, 2.0, 1.0, 0.5, 3.0]], dtype=torch.float64)
    given = {"weights": [[0.5, 0.25, 0.8]], "importance": [[0.9, 0.3, 0.6]], "capacity": 0.7}
    return gated(layer, inputs, cut={"weight": [2, 2, 2]}, **given | options), inputs


@pytest.mark.parametrize("level", ["batch", "sample", "client"])
@pytest.mark.parametrize(
    ("dropped_learn", "importance", "straight"),
    [
        (True, [0.9, 0.3, 0.6], [-0.5, 2.5, 16.4]),
        (False, [0.9, 0.3, 0.6], [-0.5, 0.0, 16.4]),
        (True, [0.1, 0.3, 0.6], [-0.5, 2.5, 16.4]),
        (False, [0.1, 0.3, 0.6], [0.0, 0.0, 16.4]),  # the authors clip at 0.2
    ],
)
def test_the_gradient_of_importances_is_the_papers_or_the_authors_by_hand(level, dropped_learn, importance, straight):
    """The loss is the output, so that d / d theta'_j = x_j, and sums of theta_j x_j over the blocks are -1, 10, 20.5.

    Of G it is M_l times that sum, of M the sum where the block is kept, of theta_j M_l x_j where it is kept.
    """
    made, inputs = six(level=level, dropped_learn=dropped_learn, importance=[importance])
    output = made(inputs)
    assert output.item() == pytest.approx(0.5 * -1 + 0.8 * 20.5, rel=1e-14)
    output.sum().backward()
    assert made.gate.importance.grad[0].tolist() == pytest.approx(straight, rel=1e-13)
    assert made.gate.weights.grad[0].tolist() == pytest.approx([-1.0, 0.0, 20.5], rel=1e-13)
    assert made.network.weight.grad[0].tolist() == pytest.approx([0.5, -0.5, 0.0, 0.0, 0.4, 2.4], rel=1e-13)


@names
@cuts
@rules
def test_gates_of_a_batch_are_one_network_for_all_in_value_and_in_every_gradient(name, cut, dropped_learn):
    network, inputs = plain(name), examples(name)
    made = gated(network, inputs, cut=cut, dropped_learn=dropped_learn, capacity=0.6)
    kept = made.gates(inputs).kept
    assert not kept.all()
    assert_same_function(made, network, inputs, kept)


@rules
@pytest.mark.parametrize("level", ["batch", "sample", "client"])
def test_of_the_whole_capacity_everything_is_kept_and_the_ranking_head_learns_nothing(level, dropped_learn):
    made, inputs = whole(level=level, dropped_learn=dropped_learn, capacity=1.0)
    gates = made.gates(inputs)
    assert gates.kept.all()
    assert torch.equal(gates.effective, gates.weights)
    found = gradients(made(inputs), dict(made.gate.named_parameters()))
    assert not any(grad.any() for name, grad in found.items() if name.startswith("rank"))
    assert found["weigh.linear.weight"].any()
    made.capacity.fill_(0.6)
    found = gradients(made(inputs), dict(made.gate.named_parameters()))
    assert found["rank.linear.weight"].any()


# Levels


def test_gates_of_a_batch_are_means_of_those_of_its_examples_and_so_is_the_choice():
    inputs = examples("two layers")
    made = gated(plain("two layers"), inputs, rows=4)
    weights, importance = made.gate.weights.mean(dim=0), made.gate.importance.mean(dim=0)
    gates = made.gates(inputs)
    assert gates.kept.shape == (1, made.blocks.count)
    torch.testing.assert_close(gates.weights[0], weights)
    alone = gated(plain("two layers"), inputs, weights=weights[None], importance=importance[None])
    assert torch.equal(gates.kept, alone.gates(inputs).kept)


def test_in_evaluation_gates_are_means_of_so_many_examples_at_once_and_in_training_of_the_whole_batch():
    made, inputs = whole("two layers", examples_given=5, examples_at_once=2)
    assert not torch.allclose(made(inputs)[:2], made(inputs[:2]))
    made.eval()
    apart = torch.cat([made(inputs[:2]), made(inputs[2:4]), made(inputs[4:])])
    torch.testing.assert_close(made(inputs), apart, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(made(inputs)[0], made(inputs[[0, 2]])[0])


@cuts
def test_gates_of_a_client_depend_on_its_mean_input_and_not_on_the_batch(cut):
    made, inputs = whole("conv2d", level="client", cut=cut)
    made.eval()
    gates = made.gates(inputs)
    assert gates.kept.shape == (1, made.blocks.count)
    assert torch.equal(gates.effective, made.gates(100 * inputs[:1]).effective)
    torch.testing.assert_close(made(inputs)[1:2], made(inputs[1:2]), rtol=1e-12, atol=1e-14)
    made.mean_input.copy_(inputs[:1])
    assert not torch.allclose(gates.weights, made.gates(inputs).weights)
    assert not isinstance(made.gate.weigh.norm, nn.BatchNorm1d)  # one vector has no batch statistics
    made.train()
    assert made(inputs[:1]).isfinite().all()


# How it is made


def test_the_capacity_is_in_double_precision_whatever_the_network_is_in():
    """Of ten entries 0.7 are 7; in single precision 0.7 is 0.69999999 and only 6 would fit."""
    layer, inputs = nn.Linear(10, 1, bias=False), torch.zeros(1, 10)
    made = GatedNetwork(layer, inputs, GatedOptions(cut={"weight": [0] + [1] * 10}, least=0.0))
    made.capacity.copy_(torch.tensor(0.7, dtype=torch.float64))
    assert made.capacity.dtype == torch.float64
    assert made.capacity.item() == 0.7
    assert made.gate.weigh.linear.weight.dtype == torch.float32
    made.eval()
    assert made.gates(inputs).kept.sum() == 7


@cuts
def test_the_given_network_is_left_alone_and_parameters_keep_their_names(cut):
    network, inputs = plain("conv2d"), examples("conv2d")
    before, output = {name: value.clone() for name, value in network.state_dict().items()}, network(inputs)
    made = GatedNetwork(network, inputs[:1], GatedOptions(cut=cut))
    made(inputs).sum().backward()
    torch.optim.SGD(made.parameters(), lr=1.0).step()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(network(inputs), output)
    assert {name for name in made.state_dict() if name.startswith("network.")} == {f"network.{name}" for name in before}


@pytest.mark.parametrize("level", ["batch", "sample", "client"])
def test_whole_numbers_as_inputs_are_refused(level):
    with pytest.raises(InvalidModel, match="A gate looks at real numbers, but the inputs are whole ones"):
        GatedNetwork(nn.Linear(3, 2), torch.zeros(1, 3, dtype=torch.int64), GatedOptions(level=level))


def test_ablations_of_the_gate_reach_it():
    made, inputs = whole(gate=GateOptions(heads=1, pre_norm=False, post_norm=False, sigmoid=False))
    assert sum(value.numel() for value in made.gate.parameters()) == (5 + 1) * made.blocks.count
    assert torch.equal(made.gates(inputs).weights, made.gate.weigh.linear(inputs).mean(dim=0, keepdim=True))
