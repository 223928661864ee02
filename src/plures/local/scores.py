"""Scores: a client learns which of the frozen weights to use; an entry is in its mask while its score is positive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from plures.core.errors import InvalidModel
from plures.core.method import Budget
from plures.core.networks import Network
from plures.core.problem import Outcome, Problem, descend
from plures.core.types import KNOWN, SHARED, Params, Part
from plures.core.visit import Trained, Upload, Visit
from plures.core.wire import Parcel
from plures.local.mask_search import smallest
from plures.local.masks import cut

__all__ = [
    "GIVEN",
    "OWNED",
    "SCORE",
    "SCORES",
    "VOTE",
    "ScoreTraining",
    "StraightThrough",
    "ThroughScores",
    "Units",
    "bits_and_owners",
    "own_votes",
    "voted",
    "with_scores",
]

SCORES: Part = "scores"
SCORE, OWNED, VOTE, GIVEN = "score.", "owned.", "vote.", "given."
"""Of a parameter: the client's scores, the entries it owns, bits for those, and which entries have a bit at all.

On the way up vote and given are the client's own bits and entries, on the way down what was voted on among these.
"""

StraightThrough = Literal["sigmoid", "identity"]


class Units(NamedTuple):
    """What one-shot pruning leaves of a tensor."""

    dim: int | None
    """A unit is a slice of this dimension; None: a single entry."""
    kept: int
    total: int


Pruning = Callable[[Network, float], Mapping[str, Units]]
"""(network, capacity) -> the units that each masked tensor keeps."""


def with_scores(params: Params, names: list[str], first: float) -> Mapping[Part, Params]:
    """Scores of some parameters, all `first`, and their votes; at first a client owns all and nothing is voted on."""
    taken = [name for name in params if name.startswith((SCORE, OWNED, VOTE, GIVEN))]
    if taken:
        what = f"'{taken[0].partition('.')[0]}.'"
        raise InvalidModel(f"the model has '{taken[0]}', but {what} names scores and votes. Rename that module.")
    nothing = {name: torch.zeros_like(params[name], dtype=torch.bool) for name in names}
    return {
        SCORES: {SCORE + name: torch.full_like(params[name], first) for name in names},
        KNOWN: {OWNED + name: ~value for name, value in nothing.items()},
        SHARED: {prefix + name: value.clone() for prefix in (VOTE, GIVEN) for name, value in nothing.items()},
    }


def scored(params: Params) -> list[str]:
    """The names of the parameters that have scores."""
    return [name.removeprefix(SCORE) for name in params if name.startswith(SCORE)]


@dataclass(frozen=True, kw_only=True)
class ThroughScores:
    """The view to train scores by: the bits forward; backward as if a bit were sigmoid(score), or the score itself."""

    straight_through: StraightThrough

    def __call__(self, params: Params, inputs: Tensor) -> Params:
        return params | {name: params[name] * self.bits(params, name) for name in scored(params)}

    def bits(self, params: Params, name: str) -> Tensor:
        score = params[SCORE + name]
        soft = score.sigmoid() if self.straight_through == "sigmoid" else score
        # The bracket is exactly zero, so that a bit is exactly 0 or 1.
        return ((score > 0).to(score.dtype) + (soft - soft.detach())) * params[OWNED + name]


def voted(params: Params, inputs: Tensor) -> Params:
    """The view of a client's model: its bits as voted, where they are, and its own elsewhere."""
    return params | {name: cut(params[name], bits_of(params, name)) for name in scored(params)}


def bits_of(params: Params, name: str) -> Tensor:
    bits = torch.where(params[GIVEN + name], params[VOTE + name], params[SCORE + name] > 0)
    return bits & params[OWNED + name]


@dataclass(frozen=True, kw_only=True)
class ScoreTraining:
    """Take over the voted bits, train the scores and put the bits that come of it into the votes.

    A client that owns all, though its capacity is less, first trains the scores of all and then prunes, once for good.
    """

    first_budget: Budget
    first_score: float
    pruning: Pruning

    def __call__(self, problem: Problem) -> Outcome:
        problem = replace(problem, params=self.obeying(problem.params))
        units = self.pruning(problem.binding.network, problem.visit.capacity)
        if not is_unpruned(problem.params, units):
            return with_own_bits(descend(problem))
        first = descend(replace(problem, phase=replace(problem.phase, budget=self.first_budget)))
        done = descend(replace(problem, params=pruned(first.params, units)))
        passes = first.passes + done.passes
        loss = (first.passes * first.loss + done.passes * done.loss) / (passes or 1.0)
        return with_own_bits(done._replace(loss=loss, passes=passes, whole_passes=first.passes))

    def obeying(self, params: Params) -> Params:
        """Scores with the sign of the voted bits and the size that they had."""
        scores: Params = {}
        for name in scored(params):
            score, vote = params[SCORE + name], params[VOTE + name]
            size = torch.where(score == 0, self.first_score, score.abs())
            given = params[GIVEN + name] & params[OWNED + name]
            scores[SCORE + name] = torch.where(given, torch.where(vote, size, -size), score)
        return params | scores


def is_unpruned(params: Params, units: Mapping[str, Units]) -> bool:
    """Whether a client still owns all, though it may not."""
    return any(of.kept < of.total for of in units.values()) and all(bool(params[OWNED + name].all()) for name in units)


def pruned(params: Params, units: Mapping[str, Units]) -> Params:
    """Own the units with the highest scores, and score nothing else."""
    owned = {name: highest(params[SCORE + name], of) for name, of in units.items()}
    return (
        params
        | {OWNED + name: mask for name, mask in owned.items()}
        | {SCORE + name: cut(params[SCORE + name], mask) for name, mask in owned.items()}
    )


def highest(score: Tensor, of: Units) -> Tensor:
    """A mask of the units with the highest mean scores; of equal ones, the first."""
    others = [dim for dim in range(score.dim()) if dim != of.dim]
    worth = score if of.dim is None else score.mean(others, keepdim=True)
    return smallest(-worth, of.kept).expand_as(score).clone()


def with_own_bits(outcome: Outcome) -> Outcome:
    """Votes that are the client's own bits, on all that it owns."""
    params, names = outcome.params, scored(outcome.params)
    bits = {VOTE + name: (params[SCORE + name] > 0) & params[OWNED + name] for name in names}
    return outcome._replace(params=params | bits | {GIVEN + name: params[OWNED + name].clone() for name in names})


def bits_and_owners(visit: Visit, trained: Trained) -> Upload:
    """A client sends its bits and which entries they are of."""
    return Upload(trained.shared)


def own_votes(shared: Params, known: Params) -> Parcel:
    """A client receives what was voted on among the entries that it owns."""
    owned = {
        prefix + name.removeprefix(OWNED): value
        for prefix in (VOTE, GIVEN)
        for name, value in known.items()
        if name.startswith(OWNED)
    }
    return Parcel({name: value & owned[name] if name in owned else value for name, value in shared.items()})
