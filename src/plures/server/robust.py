"""Sums that bear hostile uploads, by name: norms that are clipped, coordinate medians, trimmed means, Krum.

Running statistics are summed apart from uploads. `median` and `trimmed_mean` treat both alike; `clipped` and `krum`,
whose norms and distances are of uploads, take the coordinate median of statistics.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Literal

from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.method import Method
from plures.core.rates import check_count
from plures.core.sums import Summing, empty_sum
from plures.server.robust_rules import MEDIAN, Krum, Trimmed
from plures.server.robust_sums import ClippedSum, ClippedToMedian, LateSum
from plures.server.votes import Majority, counted

__all__ = ["ROBUST", "Robust", "as_summing", "clipped", "krum", "median", "trimmed_mean", "why_not"]

NewSum = Callable[[], Summing]


def never(num_uploads: int) -> str | None:
    """Of a rule that makes something of any number of uploads."""
    return None


@dataclass(frozen=True, kw_only=True)
class Robust:
    """A rule: called, it gives a new sum of uploads."""

    uploads: NewSum
    buffers: NewSum
    """Of shared running statistics."""
    too_few: Callable[[int], str | None] = never
    """Why the rule can do nothing with so many uploads; None if it can."""

    def __call__(self) -> Summing:
        return self.uploads()


MEDIAN_SUM: NewSum = partial(LateSum, settle=Trimmed(share=MEDIAN))


def median() -> Robust:
    """The median of each coordinate, over those who held it (Yin et al. 2018): holds if fewer than half are hostile.

    Every upload counts as one, whatever its weight; of an even number, the mean of the two in the middle.
    """
    return Robust(uploads=MEDIAN_SUM, buffers=MEDIAN_SUM)


def trimmed_mean(share: float) -> Robust:
    """The mean of each coordinate without a share of the values at each end (Yin et al. 2018).

    Every upload counts as one, whatever its weight. It holds if at most that share of them is hostile.
    """
    check_share("share of trimmed_mean", share)
    new = partial(LateSum, settle=Trimmed(share=float(share)))
    return Robust(uploads=new, buffers=new)


def krum(attackers: int | float, keep: int = 1) -> Robust:
    """The upload nearest to its neighbours (Blanchard et al. 2017); with `keep`, the mean of several (multi-Krum).

    `attackers` is how many may be hostile, or which share of a round's uploads. Every upload counts as one.
    """
    if isinstance(attackers, bool) or not isinstance(attackers, int):
        check_share("attackers of krum", attackers)
    else:
        check_count("attackers of krum", attackers)
    rule = Krum(attackers=attackers, keep=check_count("keep of krum", keep, least=1))
    return Robust(uploads=partial(LateSum, settle=rule), buffers=MEDIAN_SUM, too_few=rule.too_few)


def clipped(norm: float | Literal["median"] = "median") -> Robust:
    """Uploads that are longer than a norm are scaled down to it, and summed by the method's weights (Sun et al. 2019).

    "median" is the median of a round's norms.
    """
    if norm == "median":
        return Robust(uploads=partial(LateSum, settle=ClippedToMedian()), buffers=MEDIAN_SUM)
    if isinstance(norm, bool) or not isinstance(norm, Real) or math.isnan(norm) or norm <= 0:
        raise InvalidConfig(f"norm of clipped must be a number above 0 or 'median', not {norm!r}.")
    return Robust(uploads=partial(ClippedSum, norm=float(norm)), buffers=MEDIAN_SUM)


ROBUST: dict[str, Callable[..., Robust]] = {
    "clipped": clipped,
    "krum": krum,
    "median": median,
    "trimmed_mean": trimmed_mean,
}
"""By name."""


def check_share(what: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < MEDIAN:
        raise InvalidConfig(f"{what} must be 0 or more and below 0.5, not {value!r}.")


# As experiment files have it


def as_summing(value: str | Mapping[str, Any] | NewSum | None) -> NewSum:
    """How a round sums: "median", {rule = "trimmed_mean", share = 0.2}, a function of your own; None: as ever."""
    if value is None:
        return empty_sum
    if isinstance(value, str):
        return rule_named(value, {})
    if isinstance(value, Mapping) and "rule" in value:
        return rule_named(value["rule"], {key: given for key, given in value.items() if key != "rule"})
    not_called_yet: Collection[object] = ROBUST.values()
    if callable(value) and value not in not_called_yet:
        return value
    raise InvalidConfig(
        f'robust = {value!r}: give a rule such as "median" or {{rule = "trimmed_mean", share = 0.2}}; '
        "in Python also what a rule gives when it is called, as median()."
    )


def rule_named(name: Any, options: Mapping[str, Any]) -> Robust:
    if not isinstance(name, str) or name not in ROBUST:
        raise InvalidConfig(f"There is no robust rule '{name}'. {did_you_mean(str(name), ROBUST)}")
    parameters = inspect.signature(ROBUST[name]).parameters
    problems = [
        f"robust rule '{name}' has no option '{option}'. {did_you_mean(option, [*parameters, 'rule'])}"
        for option in options
        if option not in parameters
    ]
    missing = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in options]
    if missing:
        problems.append(f"robust rule '{name}' needs {', '.join(missing)}.")
    if problems:
        raise InvalidConfig(problems)
    return ROBUST[name](**options)


def why_not(method: Method) -> str | None:
    """Why a method's uploads cannot be summed by a robust rule; None if they can."""
    if method.run_round is not None:
        return "it has a round of its own, in which uploads are not summed. Leave out robust."
    rules = method.server.values() if isinstance(method.server, Mapping) else [method.server]
    if method.weight.name == counted.name or any(isinstance(rule, Majority) for rule in rules):
        return "it counts votes, of which a robust sum would be no count. Leave out robust."
    return None
