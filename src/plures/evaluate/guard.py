"""Personalise only where it helps: each client chooses between its own model and a shared one on validation data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plures.core.goals import Goal
from plures.core.method import own_parameters
from plures.core.program import Program
from plures.core.types import Params
from plures.evaluate.scores import ClientScore, Evaluation, ModelKind, SplitName, compare
from plures.evaluate.scoring import Clients, Scorer

MARGIN = 1.0


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """A shared model that clients may keep to."""

    program: Program
    shared: Params
    name: str
    """What it is, for the records."""


class Verdict(NamedTuple):
    """What one client chose."""

    client: int
    own: bool
    evidence: float
    """By how many standard errors its own model is better on its validation data; nan: it has none."""


class Guard:
    """Sees every client's own model once, and tells what comes of a free choice."""

    def __init__(
        self,
        own: Scorer,
        fallback: Fallback,
        clients: Clients,
        *,
        kind: ModelKind,
        splits: Sequence[SplitName],
        margin: float = MARGIN,
    ) -> None:
        self.own, self.fallback, self.kind, self.splits, self.margin = own, fallback, kind, splits, margin
        self.shared = Scorer(fallback.program, clients, own.goal, forgetting=own.forgetting, loss=own.loss)
        self.verdicts: dict[int, Verdict] = {}
        self.kept_to: dict[SplitName, list[ClientScore]] = {split: [] for split in splits}
        """The shared model's scores, client by client."""

    def see(self, kind: ModelKind, client: int, params: Params) -> None:
        """Let a client choose; models of other kinds are passed by."""
        if kind != self.kind:
            return
        shared = self.shared.shared_model(client, self.fallback.shared)
        evidence = self._evidence(client, params, shared)
        self.verdicts[client] = Verdict(client, evidence > self.margin, evidence)
        for split in self.splits:
            score = self.shared.score(client, shared, split, own_parameters)
            self.kept_to[split] += [] if score is None else [score]

    def _evidence(self, client: int, params: Params, shared: Params) -> float:
        view = self.own.program.method.predict
        mine = self.own.answers(client, self.own.whole(client, params, view), "validation", view)
        theirs = self.shared.answers(client, shared, "validation", own_parameters)
        if mine is None or theirs is None:
            return math.nan
        return standard_errors(items(self.own.goal, *mine) - items(self.own.goal, *theirs))

    def evaluations(self, found: Sequence[Evaluation]) -> list[Evaluation]:
        """The model that each client chose, on every split that its own was scored on."""
        return [
            Evaluation(model="guarded", split=own.split, scores=self._chosen(own), newcomers=own.newcomers)
            for own in found
            if own.model == self.kind and not own.sampled
        ]

    def _chosen(self, own: Evaluation) -> tuple[ClientScore, ...]:
        shared = {score.client: score for score in self.kept_to[own.split]}
        return tuple(score if self.verdicts[score.client].own else shared[score.client] for score in own.scores)

    def told(self, found: Sequence[Evaluation], metric: str) -> dict[str, Any]:
        """For the records: who keeps to the shared model, and whom it hurts before and after the choice."""
        counts: dict[str, Any] = {}
        for own in found:
            if own.model == self.kind and not own.sampled:
                reference = self.kept_to[own.split]
                counts[own.split] = {
                    "before": asdict(compare(own.scores, reference, metric=metric)),
                    "after": asdict(compare(self._chosen(own), reference, metric=metric)),
                }
        own_models = sum(verdict.own for verdict in self.verdicts.values())
        return {
            "against": self.fallback.name,
            "margin": self.margin,
            "clients": len(self.verdicts),
            "own_model": own_models,
            "helped_and_hurt": counts,
        }


def items(goal: Goal, output: Tensor, targets: Tensor) -> Tensor:
    return goal.each(output, targets).cpu()


def standard_errors(gains: Tensor) -> float:
    """The sum of paired gains over the square root of the sum of their squares.

    That is its standard deviation if every gain were as likely a loss: whatever its size, chance alone exceeds z with a
    probability of at most exp(-z^2 / 2) (Efron 1969). Of right and wrong answers it is McNemar's (b - c) / sqrt(b + c).
    """
    if gains.isnan().any() or gains.isinf().any():  # a model that overflows: whoever does not is better
        return math.copysign(math.inf, float(torch.nan_to_num(gains, nan=0.0).clamp(-1, 1).sum()) or -1.0)
    spread = float((gains**2).sum().sqrt())
    return float(gains.sum()) / spread if spread else 0.0
