"""Split input: a shared and a personal network read different chunks of the input, and a shared one goes on.

Figure 1c of Pillutla et al., "Federated Learning with Partial Model Personalization", ICML 2022.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from plures.core.errors import InvalidModel

Chunk = int | Sequence[int]
"""Features for the personal network: how many of the last ones, or which."""


class SplitInput(nn.Module):
    """Parameters are `shared.*`, `personal.*` and `top.*`."""

    def __init__(self, shared: nn.Module, personal: nn.Module, top: nn.Module, *, chunk: Chunk) -> None:
        super().__init__()
        self.chunk = chunk
        self.shared = shared
        self.personal = personal
        self.top = top

    def forward(self, inputs: Tensor) -> Tensor:
        common, own = cut(inputs, self.chunk)
        result: Tensor = self.top(torch.cat([self.shared(common), self.personal(own)], dim=1))
        return result


def split_input(shared: nn.Module, personal: nn.Module, top: nn.Module, *, chunk: Chunk) -> SplitInput:
    """top(concatenation of shared(rest of the input) and personal(chunk of the input)).

    `chunk` counts along dimension 1, which is that of features, of channels or of words: a number n for the last n, or
    a list of places. Outputs are put side by side along dimension 1 as well. `personal_branch()` of `plures.parts`
    selects the personal network: what it makes of private features is kept on the device, and only `shared` and `top`
    travel.
    """
    places = [chunk] if isinstance(chunk, int) else list(chunk)
    if isinstance(chunk, int) and chunk < 1:
        raise InvalidModel(f"The personal chunk has at least 1 feature, not {chunk}.")
    if not places or min(places) < 0 or len(set(places)) < len(places):
        raise InvalidModel(f"The personal chunk is a list of different places from 0 on, not {places}.")
    if {id(value) for value in shared.parameters()} & {id(value) for value in personal.parameters()}:
        raise InvalidModel("The shared and the personal network have parameters in common. Make two networks.")
    return SplitInput(shared, personal, top, chunk=chunk if isinstance(chunk, int) else tuple(chunk))


def cut(inputs: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
    """The input without the chunk, and the chunk."""
    size = inputs.shape[1]
    if size <= (chunk if isinstance(chunk, int) else max(max(chunk), len(chunk))):
        raise InvalidModel(f"An input of {size} features cannot be cut into a personal chunk {chunk} and a rest.")
    if isinstance(chunk, int):
        return inputs[:, : size - chunk], inputs[:, size - chunk :]
    rest = [place for place in range(size) if place not in chunk]
    return inputs[:, rest], inputs[:, list(chunk)]
