"""Masks: which coordinates of the shared parameters a client uses, kept by the client and known to the server."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from plures.core.errors import InvalidModel
from plures.core.networks import Network
from plures.core.types import KNOWN, SHARED, Params, Part
from plures.core.visit import Trained, Upload, Visit
from plures.core.wire import Parcel

__all__ = [
    "mask_of",
    "masked",
    "masked_delta",
    "masked_download",
    "masks_in",
    "newly_masked_delta",
    "random_mask",
    "with_masks",
]

PREFIX = "mask."


def mask_of(name: str) -> str:
    """The name of a parameter's mask."""
    return PREFIX + name


def masks_in(params: Params) -> Params:
    """The masks among some parameters, each by the name of the parameter that it is of."""
    return {name.removeprefix(PREFIX): value for name, value in params.items() if name.startswith(PREFIX)}


def with_masks(network: Network) -> Mapping[Part, Params]:
    """The extension that gives every shared parameter a mask, all ones at first."""
    taken = [name for name in network.parts if name.startswith(PREFIX)]
    if taken:
        raise InvalidModel(f"the model has '{taken[0]}', but '{PREFIX}' names masks. Rename that module.")
    shared = {name: value for name, value in network.params.items() if network.parts[name] == SHARED}
    return {KNOWN: {mask_of(name): torch.ones_like(value, dtype=torch.bool) for name, value in shared.items()}}


def masked(params: Params, inputs: Tensor) -> Params:
    """The view of a sparse network: what its masks leave out is zero, and gets no gradient."""
    masks = masks_in(params)
    own = {name: value for name, value in params.items() if not name.startswith(PREFIX)}
    return own | {name: own[name] * mask for name, mask in masks.items()}


def masked_download(shared: Params, known: Params) -> Parcel:
    """The values that the client's masks keep."""
    masks = masks_in(known)
    return Parcel({n: cut(value, masks[n]) if n in masks else value for n, value in shared.items()}, masks)


def masked_delta(visit: Visit, trained: Trained) -> Upload:
    """Received minus trained, where the client's masks were one while it trained."""
    return delta_under(masks_in(visit.state), visit, trained)


def newly_masked_delta(visit: Visit, trained: Trained) -> Upload:
    """Received minus trained, where the masks are one that the client has from now on."""
    return delta_under(masks_in(trained.known), visit, trained)


def delta_under(masks: Params, visit: Visit, trained: Trained) -> Upload:
    moved = {name: visit.received[name] - value for name, value in trained.shared.items()}
    held = {name: masks[name] if name in masks else torch.ones_like(moved[name], dtype=torch.bool) for name in moved}
    return Upload({name: cut(value, held[name]) for name, value in moved.items()}, held)


def cut(value: Tensor, mask: Tensor) -> Tensor:
    """The value where the mask is one, else 0.0; a product would leave -0.0 of negative values."""
    return torch.where(mask, value, torch.zeros((), dtype=value.dtype, device=value.device))


def random_mask(like: Tensor, count: int, draws: torch.Generator) -> Tensor:
    """A mask with `count` ones at random places; fewer ones of the same draws are among them."""
    order = torch.randperm(like.numel(), generator=draws)
    mask = torch.zeros(like.numel(), dtype=torch.bool)
    mask[order[:count]] = True
    return mask.reshape(like.shape).to(like.device)
