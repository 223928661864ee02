"""A multi-layer perceptron: a body and a linear head."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

from torch import Tensor, nn

from plures.core.errors import InvalidModel
from plures.models.init import initialise


class Mlp(nn.Module):
    """Flattens its input; hidden layers with ReLU form the body, one linear layer the head."""

    def __init__(self, inputs: int, hidden: Sequence[int], classes: int, *, batch_norm: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        width = inputs
        for size in hidden:
            layers += [nn.Linear(width, size), *([nn.BatchNorm1d(size)] if batch_norm else []), nn.ReLU()]
            width = size
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.head(self.body(inputs))
        return result


def mlp(
    *,
    shape: Sequence[int] = (1, 8, 8),
    hidden: Sequence[int] = (64,),
    classes: int = 10,
    batch_norm: bool = False,
    init: Literal["torch", "pflego"] = "torch",
) -> Mlp:
    """The small network of the demo for inputs of some shape.

    (784,), (200,) and init="pflego" is that of the PFLEGO papers.
    """
    if min([classes, *shape, *hidden]) < 1:
        raise InvalidModel(f"An MLP needs sizes of at least 1, not shape {shape}, hidden {hidden}, classes {classes}.")
    model = Mlp(prod(shape), hidden, classes, batch_norm=batch_norm)
    initialise(model, init)
    return model
