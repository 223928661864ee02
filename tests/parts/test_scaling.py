"""Pieces times gates, against the same written with plain operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from plures.core.seeds import generator
from plures.parts.scaling import Piece, scaled

PIECES = [Piece("weight", 0, 3, 2), Piece("weight", 3, 4, 0), Piece("weight", 4, 9, 2), Piece("weight", 9, 11, 4)]
"""Two of one block, one of a single entry; blocks 1 and 3 are of other parameters."""


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    draws = generator(0, "test", "scaling")
    value, gates, wanted = (torch.randn(size, generator=draws, dtype=torch.float64) for size in (11, 5, 11))
    gates[0] = 0.0  # a block that is dropped
    return value, gates, wanted


def plainly(value: Tensor, gates: Tensor) -> Tensor:
    blocks = torch.cat([torch.full((piece.stop - piece.start,), piece.block) for piece in PIECES])
    return value * gates[blocks]


def test_the_value_is_the_same_to_the_bit_with_and_without_gradients():
    value, gates, _ = drawn()
    with torch.no_grad():
        assert torch.equal(scaled(value, gates, PIECES), plainly(value, gates))
    assert torch.equal(scaled(value.requires_grad_(), gates.requires_grad_(), PIECES), plainly(value, gates))


def test_gradients_are_those_of_plain_operations_and_of_other_blocks_there_is_none():
    value, gates, wanted = drawn()
    point = (value.requires_grad_(), gates.requires_grad_())
    found = torch.autograd.grad(scaled(*point, PIECES), point, wanted)
    expected = torch.autograd.grad(plainly(*point), point, wanted)

    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], rtol=1e-14, atol=1e-14)
    assert found[1][[1, 3]].tolist() == [0.0, 0.0]
    assert found[1][0] != 0  # a dropped block's gate learns, its entries do not
    assert found[0][3] == 0


@pytest.mark.parametrize("still", ["value", "gates"])
def test_one_may_move_while_the_other_holds_still(still):
    value, gates, wanted = drawn()
    moving = (gates if still == "value" else value).requires_grad_()
    (found,) = torch.autograd.grad(scaled(value, gates, PIECES), moving, wanted)
    (expected,) = torch.autograd.grad(plainly(value, gates), moving, wanted)
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)


def test_second_derivatives_are_right():
    value, gates, _ = drawn()
    point = (value.requires_grad_(), gates.requires_grad_())
    assert torch.autograd.gradgradcheck(lambda *at: scaled(*at, PIECES), point)


def test_under_torch_func_it_is_the_same():
    value, gates, wanted = drawn()

    def loss(gates: Tensor) -> Tensor:
        return (scaled(value, gates, PIECES) * wanted).sum()

    (expected,) = torch.autograd.grad((plainly(value, gates.requires_grad_()) * wanted).sum(), gates)
    many = torch.stack([gates.detach(), 2 * gates.detach()])
    torch.testing.assert_close(vmap(grad(loss))(many), torch.stack([expected] * 2), rtol=1e-14, atol=1e-14)
