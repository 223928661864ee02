"""Blocks of rows: dropped rows are skipped, and the results are those of the dense computation with zeros."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from plures.parts.gated import GatedNetwork, GatedOptions
from tests.parts.gates import NETWORKS, assert_same_function, examples, gated, gradients, plain, random
from tests.parts.networks import seeded

names = pytest.mark.parametrize("name", NETWORKS)
rules = pytest.mark.parametrize("dropped_learn", [True, False], ids=["paper", "authors"])


def rows_of(name, **options):
    network, inputs = plain(name), examples(name)
    return gated(network, inputs, cut="rows", **options), network, inputs


def small(kind):
    """Two layers of 3 and 4 rows, of which the paper's rule forces none: floor(0.2 * 4) = 0."""
    if kind == "linear":
        return seeded(nn.Sequential, nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 4)).double(), random((4, 5), 3, low=-1.0)
    layers = (nn.Conv2d(2, 3, 2), nn.Tanh(), nn.Conv2d(3, 4, 2))
    return seeded(nn.Sequential, *layers).double(), random((4, 2, 4, 4), 3, low=-1.0)


# The same as dense


@names
@rules
@pytest.mark.parametrize("level", ["batch", "client"])
@pytest.mark.parametrize("capacity", [0.35, 0.6, 0.85])
def test_skipping_rows_gives_the_dense_values_and_gradients(name, dropped_learn, level, capacity):
    for seed in range(3):
        made, network, inputs = rows_of(name, dropped_learn=dropped_learn, level=level, capacity=capacity)
        with torch.no_grad():
            made.gate.importance.copy_(random(made.gate.importance.shape, seed))
        kept = made.gates(inputs).kept
        assert not kept.all()
        assert_same_function(made, network, inputs, kept)


@rules
@pytest.mark.parametrize("kind", ["linear", "convolution"])
@pytest.mark.parametrize("first", [0, 1, 2, 3])
@pytest.mark.parametrize("second", [0, 1, 4])
def test_layers_that_keep_no_row_or_one_or_all_are_as_dense_ones(kind, first, second, dropped_learn):
    """Each row is a block, and of each layer the first so many are kept."""
    network, inputs = small(kind)
    options = {"cut": "rows", "dropped_learn": dropped_learn, "splits": 10, "least": 0.01}
    made = gated(network, inputs, **options)
    assert (made.blocks.count, made.blocks.forced) == (7, frozenset())
    wanted = torch.tensor([[row < first for row in range(3)] + [row < second for row in range(4)]])
    made.selected = lambda importance: wanted
    assert_same_function(made, network, inputs, wanted)


@pytest.mark.parametrize("level", ["batch", "client"])
def test_a_network_of_which_nothing_is_kept_gives_zeros(level):
    """0.01 of so few entries is no row at all."""
    network, inputs = small("convolution")
    made = gated(network, inputs, cut="rows", capacity=0.01, level=level)
    assert not made.gates(inputs).kept.any()
    assert torch.equal(made(inputs), torch.zeros_like(network(inputs)))


# Really skipped


def spoil(made, inputs):
    """Put NaN into all that is dropped; a product with zero would be NaN too."""
    kept, params = made.gates(inputs).kept[0], dict(made.network.named_parameters())
    with torch.no_grad():
        for piece in made.blocks.pieces:
            if not kept[piece.block]:
                params[piece.name].view(-1)[piece.start : piece.stop] = torch.nan
    assert any(value.isnan().any() for value in params.values())


SKIPPED = [name for name in NETWORKS if name not in ("tied", "one unit")]
"""With blocks of weight and bias alike, and a row of each layer that is always kept, for half of two is one."""


@pytest.mark.parametrize("name", SKIPPED)
@pytest.mark.parametrize("level", ["batch", "client"])
def test_what_is_dropped_is_not_even_looked_at_in_either_direction(name, level):
    made, _, inputs = rows_of(name, dropped_learn=False, level=level, least=0.5, capacity=0.7)
    spoil(made, inputs)
    output = made(inputs.requires_grad_())
    assert output.isfinite().all()
    found = gradients(output, dict(made.named_parameters()) | {"inputs": inputs})
    assert all(grad.isfinite().all() for grad in found.values())


@pytest.mark.parametrize("name", SKIPPED)
def test_by_the_papers_rule_only_the_gates_learn_of_what_is_dropped(name):
    made, _, inputs = rows_of(name, least=0.5, capacity=0.7)
    before = made(inputs).detach()
    spoil(made, inputs)
    output = made(inputs.requires_grad_())
    assert torch.equal(output, before)
    found = gradients(output, dict(made.named_parameters()) | {"inputs": inputs})
    assert all(grad.isfinite().all() for name, grad in found.items() if not name.startswith("gate."))
    with torch.no_grad():
        assert torch.equal(made(inputs), before)


def test_a_network_of_one_set_of_gates_takes_batches_of_any_size():
    inputs = examples("conv2d", count=7)
    made = seeded(GatedNetwork, plain("conv2d"), inputs[:1], GatedOptions(cut="rows")).eval()
    made.capacity.fill_(0.5)
    for count in (1, 2, 7):
        assert made(inputs[:count]).shape == (count, 3)
