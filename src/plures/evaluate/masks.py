"""How far clients' masks are from each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from plures.core.types import Params
from plures.local.masks import masks_in
from plures.local.scores import GIVEN, OWNED, SCORE, VOTE, bits_of

PAIRS_OF = 20
"""Clients, evenly spaced, whose masks are compared pair by pair."""


@dataclass(frozen=True, kw_only=True)
class MaskDistances:
    """Hamming distances, as shares of all coordinates that have masks."""

    clients: int
    density: float
    mean: float | None
    """Over all pairs of clients."""
    sample: tuple[int, ...]
    """Clients that were compared pair by pair."""
    pairs: tuple[tuple[float, ...], ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def used_masks(params: Params) -> Params:
    """Of each masked parameter, which entries a client's model uses: those of its mask, or by its scores and votes.

    Masks are truth values; of a method without masks, parameters may have such names by chance.
    """
    bools = {name: value for name, value in params.items() if value.dtype == torch.bool}
    owned = [name.removeprefix(OWNED) for name in bools if name.startswith(OWNED)]
    scored = [name for name in owned if {SCORE + name, VOTE + name, GIVEN + name} <= params.keys()]
    return masks_in(bools) | {name: bits_of(params, name) for name in scored}


def mask_distances(clients: Iterable[int], masks_of: Callable[[int], Params]) -> MaskDistances | None:
    """Of all clients that have masks; None if nobody has."""
    ones: dict[str, Tensor] = {}
    masked: list[int] = []
    for client in clients:
        own = masks_of(client)
        if own:
            masked.append(client)
            for name, mask in own.items():
                ones[name] = ones[name] + mask if name in ones else mask.to(torch.int64)
    if not masked:
        return None
    size, count = sum(total.numel() for total in ones.values()), len(masked)
    # A coordinate that c of n clients hold separates c * (n - c) pairs.
    apart = sum(int((total * (count - total)).sum()) for total in ones.values())
    return MaskDistances(
        clients=count,
        density=sum(int(total.sum()) for total in ones.values()) / (count * size),
        mean=2 * apart / (count * (count - 1) * size) if count > 1 else None,
        sample=spaced(masked),
        pairs=pairwise([masks_of(client) for client in spaced(masked)]),
    )


def pairwise(masks: Sequence[Params]) -> tuple[tuple[float, ...], ...]:
    """The distance of each from each."""
    differing = torch.zeros(len(masks), len(masks), dtype=torch.float64)
    size = 0
    for name in masks[0] if masks else ():
        rows = torch.stack([own[name].flatten() for own in masks]).float()
        both = (rows @ rows.T).double()
        held = rows.sum(dim=1, dtype=torch.float64)
        differing += held[:, None] + held[None, :] - 2 * both
        size += rows.shape[1]
    return tuple(tuple(round(value / max(1, size), 6) for value in row) for row in differing.tolist())


def spaced(clients: Sequence[int]) -> tuple[int, ...]:
    if len(clients) <= PAIRS_OF:
        return tuple(clients)
    return tuple(clients[number * (len(clients) - 1) // (PAIRS_OF - 1)] for number in range(PAIRS_OF))
