"""When and what a run evaluates."""

from __future__ import annotations

from dataclasses import dataclass

from plures.evaluate import ModelKind, SplitName


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """When and what to evaluate; the last round always is."""

    every: int = 5
    models: tuple[ModelKind, ...] | None = None
    """None: the global model where there is one, the personal one, and the one the method is judged by."""
    splits: tuple[SplitName, ...] = ("validation", "test")
    metrics: tuple[str, ...] = ()
    """Beside the usual ones: "macro_f1", "balanced_accuracy", "auc", "calibration_error"; for regression "r2"."""
    targets: tuple[float, ...] = ()
    """Values of the metric that the method is judged by, on test data: the result says in which round each was had."""
    post_local: bool = False
    """Also the cohort's own models right after training, before the server step."""
