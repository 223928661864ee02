"""What an upload is made into: by accident, so that the server refuses it, or on purpose, so that it may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from plures.core.visit import Upload

__all__ = ["ATTACKS", "TAMPERINGS", "Attack", "Hostility", "sent_names"]

HUGE = 1e12
"""What a huge upload is multiplied by: still finite, in single precision too."""

Attack = Literal["sign_flip", "scaled", "noise"]


def sent_names(upload: Upload) -> list[str]:
    """The tensors of which anything is sent."""
    values, held = upload
    return [name for name, value in values.items() if value.numel() and (held is None or bool(held[name].any()))]


def with_first(upload: Upload, change: Callable[[Tensor], Tensor]) -> Upload:
    """With another tensor in the place of the first that is sent."""
    name = sent_names(upload)[0]
    return upload._replace(values=upload.values | {name: change(upload.values[name])})


def as_numbers(value: Tensor) -> Tensor:
    """Bits and counts hold neither NaN nor a huge number: then they come as numbers, which does not fit either."""
    return value if value.is_floating_point() else value.to(torch.get_default_dtype())


def with_nan(upload: Upload) -> Upload:
    """One value that is no number, among those that were held."""
    name = sent_names(upload)[0]
    value = as_numbers(upload.values[name])
    sent = torch.ones_like(value) if upload.held is None else upload.held[name]
    flat = value.reshape(-1).clone()
    flat[sent.reshape(-1).nonzero()[0]] = float("nan")
    return upload._replace(values=upload.values | {name: flat.view(value.shape)})


def in_another_shape(upload: Upload) -> Upload:
    return with_first(upload, lambda value: torch.cat([value.reshape(-1), value.new_zeros(1)]))


def under_another_name(upload: Upload) -> Upload:
    name = sent_names(upload)[0]

    def renamed(values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {f"not {key}" if key == name else key: value for key, value in values.items()}

    return Upload(renamed(upload.values), None if upload.held is None else renamed(upload.held))


def in_another_type(upload: Upload) -> Upload:
    return with_first(upload, lambda value: value.to(other_type(value.dtype)))


def other_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float32 else torch.float32


def far_too_large(upload: Upload) -> Upload:
    return upload._replace(values={name: as_numbers(value) * HUGE for name, value in upload.values.items()})


def empty(upload: Upload) -> Upload:
    return Upload({})


TAMPERINGS: dict[str, Callable[[Upload], Upload]] = {
    "nan": with_nan,
    "wrong_shape": in_another_shape,
    "wrong_name": under_another_name,
    "wrong_dtype": in_another_type,
    "huge": far_too_large,
    "nothing": empty,
}
"""By the fault; each takes an upload of which something is sent."""


@dataclass(frozen=True, kw_only=True)
class Hostility:
    """How a hostile client changes what it sends; it fits the shared part, and says nothing of what was not held."""

    attack: Attack
    scale: float

    def __call__(self, upload: Upload, draws: torch.Generator) -> Upload:
        values = {name: ATTACKS[self.attack](value, self.scale, draws) for name, value in upload.values.items()}
        if upload.held is not None:
            values = {name: value * upload.held[name].ne(0) for name, value in values.items()}
        return upload._replace(values=values)


def flipped(value: Tensor, scale: float, draws: torch.Generator) -> Tensor:
    """The opposite direction; of truth values, the opposite."""
    return ~value if value.dtype == torch.bool else (value * -scale).to(value.dtype)


def enlarged(value: Tensor, scale: float, draws: torch.Generator) -> Tensor:
    """So many times as far; truth values are all true, for no vote counts for more."""
    return torch.ones_like(value) if value.dtype == torch.bool else (value * scale).to(value.dtype)


def drowned(value: Tensor, scale: float, draws: torch.Generator) -> Tensor:
    """Normal noise in its place, so many times as large on average."""
    if value.dtype == torch.bool:
        return torch.rand(value.shape, generator=draws).to(value.device) < 0.5
    size = value.double().square().mean().sqrt() if value.numel() else 0.0
    noise = torch.randn(value.shape, generator=draws, dtype=torch.float64).to(value.device)
    return (scale * size * noise).to(value.dtype)


ATTACKS: dict[Attack, Callable[[Tensor, float, torch.Generator], Tensor]] = {
    "sign_flip": flipped,
    "scaled": enlarged,
    "noise": drowned,
}
