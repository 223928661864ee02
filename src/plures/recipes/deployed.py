"""A client's model as it is given away: a network with the preparation of its inputs, and what there is to know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from plures.core.errors import InvalidData
from plures.data.client import Prepare
from plures.recipes.newcomer_examples import as_tensor

EXACT = ("scaled", "features")
"""Preparations that tell raw inputs by their type: what is prepared already has another."""


class ClientModel(nn.Module):
    """From inputs to outputs as the client predicts; `facts` are what the file says of it.

    With a preparation, inputs are raw: bytes of images, rows of a table. Inputs of another type or shape are refused.
    Arrays of numpy are taken too.
    """

    def __init__(self, network: nn.Module, prepare: Prepare | None, facts: Mapping[str, Any]) -> None:
        super().__init__()
        self.network = network
        self.prepare = prepare
        self.facts = dict(facts)
        self._shape = tuple(facts["inputs"]["shape"])
        self._dtype: torch.dtype = getattr(torch, facts["inputs"]["dtype"])
        preparation = facts["preparation"] if prepare is not None else None
        self._exact = not self._dtype.is_floating_point or (preparation or {}).get("kind") in EXACT

    @property
    def labels(self) -> list[str] | None:
        """What each output stands for: the names of classes, or words; None for numbers to predict."""
        labels: list[str] | None = self.facts["labels"]
        return labels

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = as_tensor(inputs, "inputs") if not isinstance(inputs, Tensor) else inputs
        self._check(inputs)
        prepared = inputs if self.prepare is None else self.prepare(inputs)
        if prepared.is_floating_point():
            dtype = next((value.dtype for value in self.network.parameters()), prepared.dtype)
            prepared = prepared.to(dtype)
        output: Tensor = self.network(prepared)
        return output

    def _check(self, inputs: Tensor) -> None:
        right = inputs.dtype == self._dtype if self._exact else inputs.is_floating_point()
        if not right:
            raise InvalidData(
                f"The inputs are {inputs.dtype}, but this model takes {self._dtype}: {told_inputs(self.facts)}."
            )
        if tuple(inputs.shape[1:]) != self._shape:
            raise InvalidData(
                f"The inputs have shape {tuple(inputs.shape)}, but this model takes (examples, "
                f"{', '.join(map(str, self._shape))}): {told_inputs(self.facts)}."
            )


def told_inputs(facts: Mapping[str, Any]) -> str:
    """What a model takes, in a few words."""
    inputs, preparation = facts["inputs"], facts["preparation"]
    shape = "x".join(map(str, inputs["shape"])) or "one number"
    form = f"{inputs['dtype']} of shape {shape}"
    if preparation is None:
        return f"inputs as the data have them, {form}"
    if inputs["takes"] == "raw":
        what = {"scaled": "raw pixels", "features": "raw rows", "float32": "raw measurements"}[preparation["kind"]]
        return f"{what}, {form}"
    return f"prepared inputs, {form}"
