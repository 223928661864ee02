"""Scores of clients, and the numbers that stand for many clients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

ModelKind = Literal["global", "personal", "post_local", "finetuned", "guarded"]
"""Protocols E1 to E4: the shared model; the client's own; its own right after training; its own after fine-tuning.
And the one that a client chose of the shared model and its own."""
SplitName = Literal["train", "validation", "test"]
SMALLER_IS_BETTER = frozenset({"loss", "mae", "rmse", "calibration_error"})


@dataclass(frozen=True, kw_only=True)
class ClientScore:
    """How one model does on one client's examples."""

    client: int
    examples: int
    """Items that were scored: examples, or tokens of a text."""
    values: Mapping[str, float]
    """By metric: "accuracy", "loss", ..."""

    @property
    def accuracy(self) -> float:
        return self.values["accuracy"]

    @property
    def loss(self) -> float:
        return self.values["loss"]

    def items(self, metric: str) -> float:
        """How many of the items a metric is about: an accuracy on some classes counts by their examples."""
        if metric not in ("seen_accuracy", "unseen_accuracy"):
            return self.examples
        unseen = self.values["unseen_share"]
        return self.examples * (unseen if metric == "unseen_accuracy" else 1 - unseen)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One kind of model on one split, client by client; two kinds never share a list."""

    model: ModelKind
    split: SplitName
    scores: tuple[ClientScore, ...]
    sampled: bool = False
    """Only the clients of the round's cohort, not all."""
    newcomers: bool = False
    """Clients that were never trained on, and no others."""

    @property
    def kind(self) -> str:
        """The model, and of whom if not of all."""
        return f"{'sampled/' if self.sampled else 'newcomers/' if self.newcomers else ''}{self.model}"

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.split}"

    def summaries(self) -> dict[str, Summary]:
        """By metric name, such as `personal/test/accuracy`; empty if no client had examples."""
        if not self.scores:
            return {}
        return {
            f"{self.name}/{metric}": summarise(
                [score.values[metric] for score in self.scores],
                [score.items(metric) for score in self.scores],
                worst_is="largest" if metric in SMALLER_IS_BETTER else "smallest",
                power=2 if metric == "rmse" else 1,
            )
            for metric in self.scores[0].values
        }


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One metric over clients."""

    weighted: float
    """By examples: what pooling all clients would give."""
    mean: float
    std: float
    """Over clients, divided by their number (ddof 0)."""
    bottom_decile: float
    """The element floor(n / 10), counted from 0, of the clients sorted from the worst."""
    worst: float


def summarise(
    values: Sequence[float],
    sizes: Sequence[float],
    *,
    worst_is: Literal["smallest", "largest"] = "smallest",
    power: int = 1,
) -> Summary:
    """The summary of one value per client; a root of mean squares is pooled as squares (power 2).

    A client for which the metric does not exist, such as an AUC of one class, has no say.
    """
    pairs = [(value, size) for value, size in zip(values, sizes, strict=True) if not math.isnan(value)]
    if not pairs:
        return Summary(**dict.fromkeys(("weighted", "mean", "std", "bottom_decile", "worst"), math.nan))
    values, sizes = [value for value, _ in pairs], [size for _, size in pairs]
    mean = math.fsum(values) / len(values)
    pooled = [value * value if power == 2 else value for value in values]  # ** would raise where * gives infinity
    weighted = math.fsum(value * size for value, size in zip(pooled, sizes, strict=True)) / sum(sizes)
    from_worst = sorted(values, reverse=worst_is == "largest")
    return Summary(
        weighted=weighted if power == 1 else weighted ** (1 / power),
        mean=mean,
        std=math.sqrt(math.fsum((value - mean) * (value - mean) for value in values) / len(values)),
        bottom_decile=from_worst[len(values) // 10],
        worst=from_worst[0],
    )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Clients better, worse and equal under one run than under another, by one metric on the same examples."""

    helped: int
    hurt: int
    same: int


def compare(scores: Sequence[ClientScore], reference: Sequence[ClientScore], *, metric: str = "accuracy") -> Comparison:
    """Count clients by the sign of their difference to the reference."""
    before = {score.client: score.values[metric] for score in reference}
    pairs = [(score.values[metric], before[score.client]) for score in scores if score.client in before]
    more, less = sum(now > then for now, then in pairs), sum(now < then for now, then in pairs)
    helped, hurt = (less, more) if metric in SMALLER_IS_BETTER else (more, less)
    return Comparison(helped=helped, hurt=hurt, same=sum(now == then for now, then in pairs))
