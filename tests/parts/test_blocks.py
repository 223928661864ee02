"""Blocks: how parameters are cut into pieces, by each rule and by the user's own."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from plures.core.errors import InvalidConfig, InvalidModel
from plures.models import leaf_cnn, lenet32
from plures.parts.blocks import cut
from tests.parts.gates import Tied
from tests.parts.networks import Attention, residual

SIZES = st.lists(st.lists(st.integers(1, 9), max_size=4), min_size=1, max_size=5)
SPLITS = st.integers(2, 12)
PERCENT = st.integers(1, 100)
LAYERS = st.lists(
    st.tuples(st.sampled_from([nn.Linear, nn.Conv1d, nn.Conv2d]), st.integers(1, 6), st.integers(1, 30), st.booleans()),
    min_size=1,
    max_size=4,
)


class Tensors(nn.Module):
    """Parameters of given shapes, in no layer."""

    def __init__(self, *shapes):
        super().__init__()
        self.values = nn.ParameterList(torch.zeros(shape) for shape in shapes)


def sizes_of(blocks, name):
    return [piece.stop - piece.start for piece in blocks.pieces if piece.name == name]


def cut_one(size, rule, splits, least):
    """The pieces of one parameter, and whether its first one is always kept."""
    blocks = cut(Tensors((size,)), rule, splits, least)
    return sizes_of(blocks, "values.0"), 0 in blocks.forced


def assert_tiled(blocks, module):
    """Pieces of a parameter follow each other from its first entry to its last, and none is empty."""
    ends = {name: 0 for name, _ in module.named_parameters()}
    for name, start, stop, block in blocks.pieces:
        assert start == ends[name] < stop
        assert 0 <= block < blocks.count == len(blocks.groups)
        ends[name] = stop
    assert ends == {name: value.numel() for name, value in module.named_parameters()}
    assert {piece.block for piece in blocks.pieces} == set(range(blocks.count))
    assert blocks.costs().sum() == sum(ends.values())


# Every rule tiles every tensor


@given(SIZES, st.sampled_from(["first", "equal"]), SPLITS, PERCENT)
def test_pieces_tile_every_tensor_and_are_blocks_of_their_own(shapes, rule, splits, percent):
    module = Tensors(*shapes)
    blocks = cut(module, rule, splits, percent / 100)
    assert_tiled(blocks, module)
    assert [piece.block for piece in blocks.pieces] == list(range(blocks.count))
    assert all(len(sizes_of(blocks, name)) <= splits for name, _ in module.named_parameters())
    assert all(blocks.pieces[block].start == 0 for block in blocks.forced)


@given(SIZES, st.data())
def test_the_pieces_of_a_users_rule_tile_every_tensor_and_are_those_it_gives(shapes, data):
    module, given_sizes = Tensors(*shapes), {}
    for name, value in module.named_parameters():
        ends = sorted(data.draw(st.lists(st.integers(0, value.numel()), max_size=5)))
        given_sizes[name] = [b - a for a, b in zip([0, *ends], [*ends, value.numel()], strict=True)]
    blocks = cut(module, lambda shapes: given_sizes, 5, 0.2)
    assert_tiled(blocks, module)
    for name, sizes in given_sizes.items():
        assert sizes_of(blocks, name) == [size for size in sizes if size > 0]
    firsts = {piece.name for piece in blocks.pieces if piece.block in blocks.forced}
    assert firsts == {name for name, sizes in given_sizes.items() if sizes[0] > 0}


@given(LAYERS, SPLITS, PERCENT)
def test_rows_tile_every_tensor_and_a_block_has_the_same_rows_of_weight_and_bias(layers, splits, percent):
    module = nn.ModuleList(
        kind(inputs, rows, *[2] * (kind is not nn.Linear), bias=bias) for kind, inputs, rows, bias in layers
    )
    blocks = cut(module, "rows", splits, percent / 100)
    assert_tiled(blocks, module)
    for number, (kind, _, rows, bias) in enumerate(layers):
        weight = module[number].weight
        found = [p for p in blocks.pieces if p.name == f"{number}.weight"]
        width = weight.numel() // rows
        whole = [(p.start // width, p.stop // width, p.block) for p in found]
        assert [(start * width, stop * width) for start, stop, _ in whole] == [(p.start, p.stop) for p in found]
        if bias:
            assert whole == [(p.start, p.stop, p.block) for p in blocks.pieces if p.name == f"{number}.bias"]
        sizes, first = [stop - start for start, stop, _ in whole], rows * percent // 100
        assert sizes[0] == first or first == 0
        assert (found[0].block in blocks.forced) == (first > 0)
        assert not blocks.forced & {p.block for p in found[1:]}
        assert {blocks.groups[p.block] for p in found} == {int(kind is nn.Linear)}


# The paper's rule and the authors'


@given(st.integers(1, 3000), SPLITS, PERCENT)
def test_the_papers_rule_has_a_first_piece_of_the_least_share_and_equal_ones_after_it(size, splits, percent):
    first = size * percent // 100  # in whole numbers, for 0.29 * 100 is a little less than 29
    sizes, forced = cut_one(size, "first", splits, percent / 100)
    assert forced == (first > 0)
    rest = sizes[1:] if first > 0 else sizes
    assert (sizes[0] if forced else 0) == first
    if rest:
        length = math.ceil((size - first) / (splits - 1))
        assert rest[:-1] == [length] * (len(rest) - 1)
        assert 0 < rest[-1] <= length


@pytest.mark.parametrize(
    ("size", "splits", "least", "sizes", "forced"),
    [
        (25, 5, 0.2, [5, 5, 5, 5, 5], True),
        (27, 5, 0.2, [5, 6, 6, 6, 4], True),  # floor(5.4) = 5, and ceil(22 / 4) = 6
        (3, 5, 0.2, [1, 1, 1], False),  # floor(0.6) = 0: the first piece is empty
        (100, 2, 0.29, [29, 71], True),
        (10, 5, 1.0, [10], True),
    ],
)
def test_the_papers_rule_by_hand(size, splits, least, sizes, forced):
    assert cut_one(size, "first", splits, least) == (sizes, forced)


@pytest.mark.parametrize(
    ("size", "splits", "sizes"),
    [(25, 10, [3] * 8 + [1]), (25, 5, [5] * 5), (62, 5, [13, 13, 13, 13, 10]), (3, 5, [1, 1, 1])],
)
def test_the_authors_rule_has_equal_pieces_of_the_size_rounded_up_and_keeps_the_first(size, splits, sizes):
    """25 entries in 10 pieces of ceil(2.5) = 3 are 8 and one of 1."""
    assert cut_one(size, "equal", splits, 0.01) == (sizes, True)


@pytest.mark.parametrize(("make", "blocks"), [(leaf_cnn, 40), (lenet32, 50)], ids=["leaf_cnn", "lenet32"])
@pytest.mark.parametrize("rule", ["equal", "first"])
def test_the_networks_of_the_paper_have_as_many_blocks_as_its_code(make, blocks, rule):
    """8 and 10 tensors in 5 pieces each (METHODS 2.16); two convolutions with biases have 20 of them."""
    found = cut(make(), rule, 5, 0.2)
    assert found.count == blocks
    assert len(found.forced) == blocks // 5
    assert sum(found.groups) == blocks - 20


# What is cut


def test_norms_and_buffers_are_never_gated():
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.GroupNorm(2, 4),
        nn.InstanceNorm2d(4, affine=True),
        nn.Flatten(),
        nn.Linear(16, 4),
        nn.LayerNorm(4),
        nn.RMSNorm(4),
    )
    module.register_buffer("table", torch.zeros(3))
    for rule in ("first", "equal", "rows"):
        assert set(cut(module, rule, 5, 0.2).by_name) == {"0.weight", "0.bias", "5.weight", "5.bias"}
    with pytest.raises(InvalidModel, match="LayerNorm has no parameters outside of norms: there is nothing to gate"):
        cut(nn.LayerNorm(3), "first", 5, 0.2)
    assert not [name for name in cut(residual(), "first", 5, 0.2).by_name if "norm" in name]


def test_a_weight_that_two_layers_share_is_cut_once():
    blocks = cut(Tied(), "first", 5, 0.2)
    assert list(blocks.by_name) == ["first.weight", "first.bias", "second.bias"]


def test_rows_of_what_is_no_weight_and_no_bias_are_refused():
    with pytest.raises(InvalidModel, match=r"but \['0.bias_hh_l0', .*\] are neither. Use cut = \"first\""):
        cut(nn.Sequential(nn.GRU(2, 3)), "rows", 5, 0.2)


def test_a_user_may_cut_by_channels_and_by_heads():
    """Three heads of two rows each; 4 channels, of which none is always kept, for the first piece is empty."""
    attention = cut(Attention(6), lambda shapes: {name: [12, 12, 12] for name in shapes}, 5, 0.2)
    values = torch.ones(6, 6)
    gates = torch.arange(1.0, 13.0)
    assert attention.expand("key.weight", gates, values)[:, 0].tolist() == [4, 4, 5, 5, 6, 6]
    assert attention.forced == {0, 3, 6, 9}
    conv = nn.Conv2d(3, 4, 5, bias=False)
    channels = cut(conv, lambda shapes: {n: [0] + [math.prod(s[1:])] * s[0] for n, s in shapes.items()}, 5, 0.2)
    assert channels.forced == frozenset()
    assert torch.equal(channels.expand("weight", gates, conv.weight), conv.weight * gates[:4, None, None, None])


def test_what_a_user_does_not_cut_is_cut_by_the_papers_rule():
    """The bias of 10: floor(0.2 * 10) = 2 entries first, then ceil(8 / 4) = 2 four times."""
    blocks = cut(nn.Linear(3, 10), {"weight": [12, 18]}, 5, 0.2)
    assert sizes_of(blocks, "weight") == [12, 18]
    assert sizes_of(blocks, "bias") == [2] * 5
    assert blocks.forced == {0, 2}


@pytest.mark.parametrize("sizes", [[], [1], [3, -1], [1.0, 1.0], [True, True], "2", 2, None])
def test_sizes_that_do_not_tile_are_one_error_that_names_the_parameter(sizes):
    with pytest.raises(InvalidConfig, match=r"^'0.bias' has 2 entries.*whole numbers that add up to 2, or") as found:
        cut(nn.Sequential(nn.Linear(3, 2)), lambda shapes: {"0.weight": [6], "0.bias": sizes}, 5, 0.2)
    assert len(found.value.problems) == 1


@pytest.mark.parametrize("name", ["wieght", "1.weight"])
def test_a_cut_of_what_is_not_gated_is_refused(name):
    module = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
    with pytest.raises(InvalidConfig, match=f"no parameter '{name}' to cut"):
        cut(module, {"0.weight": [6], name: [2]}, 5, 0.2)


def test_a_rule_that_gives_no_dict_is_refused():
    with pytest.raises(InvalidConfig, match="give a dict from names to sizes of pieces"):
        cut(nn.Linear(3, 2), lambda shapes: [[6], [2]], 5, 0.2)


def test_pieces_with_one_label_are_one_block_and_never_forced():
    """Two heads of two rows each in query, key and value, 3 x 4 rows of 4 entries, and the columns of none else."""
    heads = [[8, "head 0"], [8, "head 1"]] * 3
    blocks = cut(nn.Linear(4, 12), {"weight": heads, "bias": [[2, "head 0"], [2, "head 1"]] * 3}, 5, 0.2)
    assert blocks.count == 2
    assert blocks.forced == frozenset()
    assert blocks.costs().tolist() == [3 * 8 + 3 * 2] * 2
    assert [piece.block for piece in blocks.by_name["bias"]] == [0, 1] * 3


@pytest.mark.parametrize("piece", [[2], [2, 3], ["head", 2], [2, "head", 1], [-2, "head"]])
def test_a_piece_is_a_size_or_a_size_and_a_label(piece):
    with pytest.raises(InvalidConfig, match="or of pairs such as"):
        cut(nn.Linear(3, 2), {"bias": [piece]}, 5, 0.2)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("by_channels", [False, True])
def test_a_gated_kernel_lies_as_the_kernel_does(channels, by_channels):
    conv = torch.nn.Conv2d(channels, 4, 3)
    blocks = cut(conv, "first", 3, 0.2)
    given = conv.weight.detach()
    if by_channels:
        given = given.to(memory_format=torch.channels_last)
    gates = torch.tensor([0.5, 2.0, 0.0, 1.0, 1.0, 1.0])[: blocks.count]
    found = blocks.expand("weight", gates, given)
    assert found.stride() == given.stride()
    pieces = [gates[piece.block].expand(piece.stop - piece.start) for piece in blocks.by_name["weight"]]
    assert torch.equal(found.flatten(), given.flatten() * torch.cat(pieces))
