"""A vote of the cohort on truth values, entry by entry: sums of bits are counts, and the server's step decides."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from plures.core.method import OptimizerState, Weight, one
from plures.core.rates import Constant, check_count
from plures.core.types import Params, Schedule

__all__ = ["Majority", "counted"]

counted = Weight("counted", one, None)
"""Every client counts as one, and nothing is divided: the sum of bits is how many are true."""


@dataclass(frozen=True, kw_only=True)
class Majority:
    """As the server's optimiser, with `counted` as the weight: an entry is what more than half of its voters say.

    Uploads have `bits` + NAME, and `voters` + NAME for the entries that these are about. An entry with fewer voters
    than the quorum stays as it was; `voters` + NAME is where there ever was a vote.
    """

    bits: str
    voters: str
    quorum: int

    def __post_init__(self) -> None:
        check_count("quorum", self.quorum, least=1)

    @property
    def lr(self) -> Schedule:
        """Without a say: a vote has no rate."""
        return Constant(value=1.0)

    def init(self, params: Params) -> OptimizerState:
        return {}

    def update(self, grads: Params, state: OptimizerState, params: Params, lr: float) -> tuple[Params, OptimizerState]:
        """`grads` are counts."""
        moved = dict(params)
        for bits in [name for name in params if name.startswith(self.bits)]:
            voters = self.voters + bits.removeprefix(self.bits)
            decided = grads[voters] >= self.quorum
            moved[bits] = torch.where(decided, 2 * grads[bits] > grads[voters], params[bits])
            moved[voters] = params[voters] | decided
        return moved, state
