"""Metrics beside the usual ones, for those who ask: from scikit-learn, client by client."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from sklearn.calibration import calibration_curve
from sklearn.metrics import f1_score, r2_score, recall_score, roc_auc_score
from torch import Tensor

from plures.core.goals import Goal, Metric, as_targets
from plures.evaluate.forgetting import FORGETTING

BINS = 15
"""Of confidences, for the calibration error: equally wide ones from 0 to 1."""


def macro_f1(output: Tensor, targets: Tensor) -> float:
    """The mean F1 of the classes among the client's targets or predictions; a class never predicted has 0."""
    return float(f1_score(numbers(targets), numbers(output.argmax(dim=1)), average="macro", zero_division=0.0))


def balanced_accuracy(output: Tensor, targets: Tensor) -> float:
    """The mean over the client's own classes of the share of their examples that is right."""
    wanted = numbers(targets)
    found = recall_score(wanted, numbers(output.argmax(dim=1)), labels=np.unique(wanted), average="macro")
    return float(found)


def auc(output: Tensor, targets: Tensor) -> float:
    """The area under the ROC curve, each of the client's classes against its others, and their mean.

    Probabilities are those of the client's own classes, scaled to 1; of one class alone there is none.
    """
    wanted = numbers(targets)
    classes = np.unique(wanted)
    if len(classes) < 2:
        return math.nan
    likely = torch.softmax(output[:, torch.from_numpy(classes).to(output.device)].double(), dim=1).cpu().numpy()
    if len(classes) == 2:
        return float(roc_auc_score(wanted == classes[1], likely[:, 1]))
    return float(roc_auc_score(wanted, likely, multi_class="ovr", labels=classes))


def calibration_error(output: Tensor, targets: Tensor) -> float:
    """How far confidence and accuracy of the chosen class are apart, over 15 bins of confidence, by their examples."""
    confidence, chosen = torch.softmax(output.double(), dim=1).max(dim=1)
    sure, right = confidence.cpu().numpy(), numbers(chosen == targets).astype(int)
    accuracy, mean_confidence = calibration_curve(right, sure, n_bins=BINS)
    # The bins of scikit-learn, of which it leaves out empty ones.
    edges = np.linspace(0.0, 1.0, BINS + 1)
    sizes = np.bincount(np.searchsorted(edges[1:-1], sure), minlength=BINS)
    shares = sizes[sizes > 0] / len(sure)
    return float(np.sum(shares * np.abs(accuracy - mean_confidence)))


def r2(output: Tensor, targets: Tensor) -> float:
    """The share of the variance of a client's targets that is explained; of equal targets there is none."""
    wanted = numbers(targets)
    if (wanted == wanted[:1]).all():
        return math.nan
    return float(r2_score(wanted, numbers(as_targets(output, targets))))


def numbers(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()


MORE_METRICS: dict[str, dict[str, Metric]] = {
    "classification": {
        "macro_f1": macro_f1,
        "balanced_accuracy": balanced_accuracy,
        "auc": auc,
        "calibration_error": calibration_error,
    },
    "regression": {"r2": r2},
    "next_token": {},
}
"""By goal, and by the name a file gives them."""


def with_metrics(goal: Goal, wanted: Sequence[str]) -> Goal:
    """The goal, with some more metrics; what it is judged by stays."""
    known = MORE_METRICS[goal.name]
    more = {name: known[name] for name in wanted if name != FORGETTING}
    return replace(goal, metrics={**goal.metrics, **more})
