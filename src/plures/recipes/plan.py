"""When and what a run evaluates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plures.evaluate import ModelKind, SplitName
from plures.evaluate.guard import MARGIN, Fallback


@dataclass(frozen=True, kw_only=True)
class GuardPlan:
    """Each client keeps to a shared model unless its own is better on its validation data."""

    margin: float = MARGIN
    """Standard errors by which its own must be better."""
    against: str | Path | Fallback | None = None
    """The folder of a run whose shared model to fall back on; None: the run's own, or that of stage (a)."""


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """When and what to evaluate; the last round always is."""

    every: int = 5
    models: tuple[ModelKind, ...] | Literal["all"] | None = None
    """None: the global model where there is one, the personal one, and the one the method is judged by."""
    splits: tuple[SplitName, ...] = ("validation", "test")
    metrics: tuple[str, ...] = ()
    """Beside the usual ones: "macro_f1", "balanced_accuracy", "auc", "calibration_error", "forgetting"; for regression
    "r2"."""
    targets: tuple[float, ...] = ()
    """Values of the metric that the method is judged by, on test data: the result says in which round each was had."""
    post_local: bool = False
    """Also the cohort's own models right after training, before the server step."""
    guard: GuardPlan | None = None
    diagnostics: bool = False
    """Also norms and likeness of gradients, coupling and loss drops (docs/diagnostics.md)."""
