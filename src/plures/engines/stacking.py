"""Parameters of several clients as one set of tensors, the first dimension the client."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plures.core.types import Params


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What several clients hold: what is one and the same tensor for all of them is held once."""

    own: Params
    """With a first dimension for the client."""
    common: Params

    def first(self, active: int) -> Params:
        """What the first clients hold of their own."""
        return {name: value[:active] for name, value in self.own.items()}


def stacked(each: Sequence[Params], *, copied: Collection[str] = (), apart: Collection[str] = ()) -> Stack:
    """Several clients' parameters; names of `copied` may be written into, those of `apart` get the first dimension."""
    own: Params = {}
    common: Params = {}
    for name, first in each[0].items():
        values = [params[name] for params in each]
        if any(value is not first for value in values) or name in copied:
            own[name] = torch.stack(values)
        elif name in apart:
            own[name] = first.expand(len(values), *first.shape)
        else:
            common[name] = first
    return Stack(own=own, common=common)


def taken_apart(values: Params, place: int) -> Params:
    """What one client holds, in memory of its own: a slice would keep everybody's alive."""
    return {name: value[place].clone() for name, value in values.items()}


def per_client(numbers: Tensor, like: Tensor) -> Tensor:
    """A number for each client in a shape that multiplies what they hold."""
    return numbers.reshape(-1, *[1] * (like.dim() - 1))
