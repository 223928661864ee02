"""What the trials of a search are judged by: a number on validation data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.goals import Goal
from plures.evaluate.metrics import MORE_METRICS
from plures.recipes.experiment import Trained
from plures.report.scales import direction

MODELS: tuple[str, ...] = get_args(Trained)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A metric of one kind of model, weighted by clients' examples."""

    model: str | None
    """None: the one that the method is judged by."""
    metric: str
    metrics: list[str]
    """Beside the usual ones, what has to be computed for it."""

    @property
    def models(self) -> list[str] | None:
        return None if self.model is None else [self.model]

    @property
    def larger_is_better(self) -> bool:
        return direction(self.metric) > 0

    @property
    def text(self) -> str:
        """For readers."""
        return f"validation {self.metric}" if self.model is None else self.name(self.model)

    def name(self, headline: str) -> str:
        """As in result.json, for a method that is judged by that model."""
        return f"{self.model or headline}/validation/{self.metric}"


def read_target(given: str | None, goal: Goal) -> Target:
    """ "loss", or "personal/validation/loss"; None: what methods are judged by."""
    model, _, metric = (given or goal.judged_by).rpartition("/")
    more = MORE_METRICS[goal.name]
    known = [*goal.metrics, "loss", *more]
    if metric not in known:
        raise InvalidConfig(f"tune.metric = {given!r}: there is no metric '{metric}'. {did_you_mean(metric, known)}")
    kind, _, split = model.rpartition("/")
    if model and split != "validation":
        raise InvalidConfig(
            f"tune.metric = {given!r}: trials are judged on validation data alone. Write {metric!r}, or "
            f"'personal/validation/{metric}'."
        )
    if model and kind not in MODELS:
        raise InvalidConfig(f"tune.metric = {given!r}: there is no model '{kind}'. {did_you_mean(kind, MODELS)}")
    return Target(model=kind or None, metric=metric, metrics=[metric] if metric in more else [])
