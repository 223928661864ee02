"""How many bytes a client of some capacity holds or sends at most, from shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from plures.core.method import Capacity
from plures.core.program import Binding
from plures.core.types import SHARED_BUFFERS, Params, is_known, travels
from plures.core.wire import Message, Parcel
from plures.local.masks import mask_of
from plures.wire import size

CostOfSizes = Callable[[Mapping[str, int]], int]
"""From how many entries of each parameter a model uses to what it costs."""

LIST_BYTES = 5
"""Most that the length of a list of gaps takes in a message: it is below 2 ** 35."""


def most_bytes(rule: Capacity, binding: Binding) -> CostOfSizes:
    """Bytes of a model's values or, if these are more and the method limits them, of its largest message."""
    elements = {name: value.element_size() for name, value in binding.network.params.items()}
    message = largest_message(binding) if rule.limits_uploads else lambda sizes: 0
    return lambda sizes: max(sum(count * elements[name] for name, count in sizes.items()), message(sizes))


def largest_message(binding: Binding) -> CostOfSizes:
    """The most that a client sends at once: values, where they are, masks that the server is told, names and shapes."""
    sent = ones_like(binding.picked(lambda part: travels(part) and part != SHARED_BUFFERS))
    statistics = ones_like(binding.picked(lambda part: part == SHARED_BUFFERS))
    known = ones_like(binding.picked(is_known))
    parcel = Parcel(sent, {name: value.bool() for name, value in sent.items()})
    of_whole, with_known = size(Message(parcel, statistics)), size(Message(parcel, statistics | known))
    named = [*sent.items(), *((name.removeprefix(mask_of("")), value) for name, value in known.items())]
    tensors = [(name, value.numel(), 0 if value.dtype == torch.bool else value.element_size()) for name, value in named]

    def most(sizes: Mapping[str, int]) -> int:
        if all(sizes[name] == value.numel() for name, value in binding.network.params.items()):
            return of_whole  # there are no positions and masks to tell
        total = with_known
        for name, numel, element in tensors:
            kept = sizes.get(name, numel)
            total += position_bytes(numel, kept) - (numel - kept) * element
        return total

    return most


def ones_like(params: Params) -> Params:
    """Tensors of which every message sends every entry."""
    return {name: torch.ones_like(value) for name, value in params.items()}


def position_bytes(numel: int, kept: int) -> int:
    """The most that it takes to say where so many entries are: a bit for each that there is, or the gap before each."""
    # A gap takes a byte, and one more for each factor of 128 in it: in all, at most one for 127 entries left out.
    return min(-(-numel // 8), kept + (numel - kept) // 127 + LIST_BYTES)
