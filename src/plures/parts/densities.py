"""How many entries each tensor of a sparse network keeps, so that all together keep a given share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, prod

from plures.core.errors import InvalidConfig

Shapes = Mapping[str, Sequence[int]]
"""Tensors by name, each with its shape."""

ROUND_OFF = 1e-12
"""Relative error that products of floating-point numbers may have: 0.29 * 100 is 28.999999999999996."""


def erk(shapes: Shapes, density: float, *, scale: float = 1.0) -> dict[str, float]:
    """Densities after Erdős, Rényi and kernel sizes (Evci et al. 2020), over all tensors given, as in FedSpa.

    A tensor's density is proportional to (sum / product of its shape) ** scale, and at most 1; tensors of one
    dimension are the first to be dense. Densities times sizes add up to `density` of all entries.
    """
    if check_density(density) == 1.0:
        return dict.fromkeys(shapes, 1.0)
    factor = epsilon(shapes, density, scale=scale)
    return {name: min(1.0, factor * raw_density(shape, scale)) for name, shape in shapes.items()}


def epsilon(shapes: Shapes, density: float, *, scale: float = 1.0) -> float:
    """The factor of `erk`. While it would make a tensor more than dense, those of the largest raw density are dense."""
    raw = {name: raw_density(shape, scale) for name, shape in shapes.items() if prod(shape) > 0}
    sizes = {name: prod(shapes[name]) for name in raw}
    left = check_density(density) * sum(sizes.values())
    while raw:
        factor, largest = left / sum(raw[name] * sizes[name] for name in raw), max(raw.values())
        if factor * largest <= 1.0 or len(set(raw.values())) == 1:
            return factor
        left -= sum(sizes[name] for name in raw if raw[name] == largest)
        raw = {name: value for name, value in raw.items() if value < largest}
    raise InvalidConfig("There is no tensor with entries to share a density among. Give the shapes of a network.")


def uniform(shapes: Shapes, density: float) -> dict[str, float]:
    """The same density for every tensor, whatever its shape: what FedSpa's paper compares ERK with."""
    return dict.fromkeys(shapes, check_density(density))


def counts(shapes: Shapes, densities: Mapping[str, float]) -> dict[str, int]:
    """How many entries each tensor keeps: density * size, rounded down once errors of floating point are mended.

    No tensor that has entries is left with none, for nothing passes a weight, or the scale of a norm, that is all
    zeros. Where rounding down gives 0 it keeps 1, and if the sum would then exceed density * size of all tensors
    together, the tensors that keep most give it up.
    """
    exact = {name: check_density(densities[name]) * prod(shape) for name, shape in shapes.items()}
    kept = {name: max(whole(value), int(value > 0)) for name, value in exact.items()}
    capacity = whole(sum(exact.values()))
    needed = sum(value > 0 for value in exact.values())
    if capacity < needed:
        raise InvalidConfig(
            f"These densities keep {capacity} entries in all, and each of {needed} tensors needs one at least. "
            f"Give a density of {needed / sum(prod(shape) for shape in shapes.values()):.3g} or more."
        )
    for _ in range(sum(kept.values()) - capacity):
        kept[max(kept, key=lambda name: kept[name])] -= 1
    return kept


DENSITIES: dict[str, Callable[[Shapes, float], dict[str, float]]] = {"erk": erk, "uniform": uniform}


def raw_density(shape: Sequence[int], scale: float) -> float:
    """(sum / product) ** scale; 1 for a tensor of one dimension, of none, or without entries."""
    size = prod(shape)
    return 1.0 if len(shape) < 2 or size == 0 else float((sum(shape) / size) ** scale)


def whole(value: float) -> int:
    return int(value * (1.0 + ROUND_OFF))


def check_density(density: float) -> float:
    if not isfinite(density) or not 0.0 < density <= 1.0:
        raise InvalidConfig(f"A density is the share of entries that are kept: above 0 and at most 1, not {density!r}.")
    return float(density)
