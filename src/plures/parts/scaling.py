"""Pieces of a parameter times the gates of their blocks, without a pass over memory that is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Piece(NamedTuple):
    """A run of consecutive entries of one parameter, flattened, and the block it belongs to."""

    name: str
    start: int
    stop: int
    block: int


def scaled(value: Tensor, gates: Tensor, pieces: Sequence[Piece]) -> Tensor:
    """A parameter, flattened, with each of its pieces times the gate of its block."""
    if torch._C._are_functorch_transforms_active():  # these know plain operations alone
        values = torch.split(value, [piece.stop - piece.start for piece in pieces])
        return torch.cat([value * gates[piece.block] for value, piece in zip(values, pieces, strict=True)])
    if torch.is_grad_enabled():
        result: Tensor = Scaled.apply(value, gates, pieces)  # type: ignore[no-untyped-call]
        return result
    return written(value, gates, pieces)


def written(value: Tensor, gates: Tensor, pieces: Sequence[Piece]) -> Tensor:
    result = torch.empty_like(value)
    for _, start, stop, block in pieces:
        torch.mul(value[start:stop], gates[block], out=result[start:stop])
    return result


class Scaled(torch.autograd.Function):
    """Written piece by piece into one tensor, in both directions; autograd would copy the pieces once more."""

    @staticmethod
    def forward(value: Tensor, gates: Tensor, pieces: Sequence[Piece]) -> Tensor:
        return written(value, gates, pieces)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        value, gates, ctx.pieces = inputs
        ctx.save_for_backward(value, gates)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        value, gates = ctx.saved_tensors
        of_value = scaled(grad, gates, ctx.pieces) if ctx.needs_input_grad[0] else None
        of_gates = None
        if ctx.needs_input_grad[1]:
            sums = [torch.dot(grad[start:stop], value[start:stop]) for _, start, stop, _ in ctx.pieces]
            blocks = torch.tensor([piece.block for piece in ctx.pieces], device=gates.device)
            of_gates = torch.zeros_like(gates).index_add(0, blocks, torch.stack(sums))
        return of_value, of_gates, None
