"""The densities of pFedGate's paper, and where its code breaks the capacity."""

from __future__ import annotations

import pytest
import torch

from plures import run
from plures.core.errors import InvalidConfig
from plures.data import iid, partition
from plures.methods import pfedgate
from plures.models import leaf_cnn, lenet32, mlp
from plures.parts.blocks import cut
from plures.parts.gated import knapsack
from plures.parts.selection import worth
from tests.recipes.helpers import tiny


@pytest.mark.parametrize("way", ["greedy", "exact"])
@pytest.mark.parametrize("rule", ["first", "equal"])
@pytest.mark.parametrize(
    ("make", "classes", "half", "less"),
    [(leaf_cnn, 62, 0.434, 0.246), (lenet32, 10, 0.432, 0.242), (leaf_cnn, 10, 0.406, 0.209)],
)
def test_the_networks_of_the_paper_have_its_densities_whatever_the_importances(make, classes, half, less, rule, way):
    """METHODS 2.16, with B = 5 and s_min = 0.2, so that a fifth is forced, by the paper's cut as by the authors'.

    LEAF-CNN of 62 classes: a piece of the large layer has 419,431 of 2,278,334 entries. Of the 1,780,988 free ones in
    linear layers 0.3 are 534,296: one such piece fits, and with it all 103,267 of the smaller layers; 0.1 are
    178,099: none does. So it is with the convolutions, whose large pieces have 10,240: one of 0.3 * 41,676, none of
    0.1. In all (455,670 + 419,431 + 103,267 + 10,240 + 716) / 2,278,334 = 0.434, and without the large ones 0.246.
    """
    blocks = cut(make(classes=classes), rule, 5, 0.2)
    wall = knapsack(blocks, 0.2, None)
    importance = torch.rand(10, blocks.count, generator=torch.Generator().manual_seed(0))
    for s, density in ((0.5, half), (0.3, less)):
        capacity = torch.tensor(s, dtype=torch.float64)
        kept = wall.select(worth(importance, 0.2), capacity, way).double()
        assert {round(value, 3) for value in (kept @ wall.costs / wall.costs.sum()).tolist()} == {density}


@pytest.mark.parametrize(("splits", "density", "kept"), [(2, 0.3, "0.5"), (5, 0.1, "0.2")])
def test_equal_pieces_of_more_than_the_capacity_are_an_error_before_round_1(splits, density, kept, tmp_path):
    """The authors' code keeps 1 / B > s there, and a little more, for pieces are rounded up; the paper's cut, s."""
    federation, network = partition(tiny(), iid(4), seed=0), mlp(shape=(4,), hidden=(5,), classes=4)
    for capacity in (None, {"density": density}):
        method = pfedgate(cut="equal", splits=splits, density=1.0 if capacity else density)
        with pytest.raises(InvalidConfig, match=rf"A capacity of {density} is less than the {kept}\d* that pfedgate"):
            run(method, federation, network, rounds=1, capacity=capacity, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    run(pfedgate(cut="first", splits=splits, density=density), federation, network, rounds=1)
