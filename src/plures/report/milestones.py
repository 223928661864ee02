"""In which round a run reached what was asked of it, from its records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SHARE = 0.8
"""Of a run's own final value, for the relative number of rounds."""


def curve(rounds: Iterable[Mapping[str, Any]], metric: str) -> list[tuple[int, float]]:
    """(round, value over all clients' examples) of every evaluated round; NaN where records could not hold it."""
    found = [(line["round"], line.get("metrics", {}).get(metric)) for line in rounds]
    values = [(round, numbers.get("weighted")) for round, numbers in found if numbers is not None]
    return [(round, math.nan if value is None else value) for round, value in values]


def rounds_to(values: Sequence[tuple[int, float]], target: float, *, smaller_is_better: bool = False) -> int | None:
    """The first evaluated round that is as good as the target; None if none is."""
    sign = -1 if smaller_is_better else 1
    return next((round for round, value in values if sign * value >= sign * target), None)


def rounds_to_share(
    values: Sequence[tuple[int, float]], share: float = SHARE, *, smaller_is_better: bool = False
) -> int | None:
    """The first evaluated round that has a share of the last one's value; of an error, the last over the share.

    None for a run that ends with an infinite error.
    """
    if not values or not math.isfinite(values[-1][1]):
        return None
    final = values[-1][1]
    return rounds_to(values, final / share if smaller_is_better else final * share, smaller_is_better=smaller_is_better)


def relative_rounds(own: int | None, reference: int | None) -> float | None:
    """Rounds over those of a reference run: below 1 is faster."""
    return None if own is None or not reference else own / reference


def milestones(
    rounds: Sequence[Mapping[str, Any]], metric: str, targets: Sequence[float], *, smaller_is_better: bool
) -> dict[str, Any]:
    """What a result tells: for each target the round, or ">T" of T rounds, and the round of a share of the final."""
    values = curve(rounds, metric)
    last = rounds[-1]["round"] if rounds else 0
    found = {f"{target:g}": rounds_to(values, target, smaller_is_better=smaller_is_better) for target in targets}
    return {
        "metric": metric,
        "targets": {target: f">{last}" if round is None else round for target, round in found.items()},
        "share": SHARE,
        "share_of_final": rounds_to_share(values, smaller_is_better=smaller_is_better),
    }
