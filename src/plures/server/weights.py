"""How much each upload counts in the sum of a cohort, and the same as scales of a client's own steps.

p is a client's share of all examples, q its share of the cohort's, `inclusion` its probability to be drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from plures.core.method import Weight, one
from plures.core.rates import check_count
from plures.core.types import Facts

__all__ = [
    "WEIGHTS",
    "batches",
    "global_ht",
    "ht_share",
    "inverse_inclusion",
    "round_ht",
    "round_share",
    "samples",
    "uniform",
]


def num_examples(facts: Facts) -> float:
    """The client's number of examples."""
    return float(facts.examples)


@dataclass(frozen=True, kw_only=True)
class NumBatches:
    """The client's number of mini-batches in an epoch, the last one counted in full."""

    batch: int

    def __call__(self, facts: Facts) -> float:
        return float(-(-facts.examples // self.batch))


def ht_share(facts: Facts) -> float:
    """p / inclusion: summed over a random cohort, unbiased for the sum of p over all clients."""
    return facts.examples / facts.all_examples / facts.inclusion


def inverse_inclusion(facts: Facts) -> float:
    """1 / inclusion: clients over cohort size, if that is fixed."""
    return 1.0 / facts.inclusion


def round_share(facts: Facts) -> float:
    """q / inclusion: normalised over the cohort, and then scaled up once more."""
    return facts.examples / facts.cohort_examples / facts.inclusion


def _scaled_examples(facts: Facts) -> float:
    return facts.examples / facts.inclusion


samples = Weight("samples", num_examples, num_examples)
"""q: by the number of examples; sums to 1 over the cohort."""

uniform = Weight("uniform", one, one)
"""One over the size of the cohort."""

global_ht = Weight("global_ht", ht_share, None)
"""p / inclusion, after Horvitz and Thompson: unbiased, and does not sum to 1."""

round_ht = Weight("round_ht", _scaled_examples, num_examples)
"""q / inclusion, as the public code of PFLEGO has it: too large by about 1 / inclusion."""


def batches(batch: int) -> Weight:
    """By the number of mini-batches, a proxy for the number of examples; sums to 1 over the cohort."""
    count = NumBatches(batch=check_count("batch of the weight 'batches'", batch, least=1))
    return Weight("batches", count, count)


WEIGHTS: dict[str, Weight | Callable[[int], Weight]] = {
    "samples": samples,
    "uniform": uniform,
    "batches": batches,
    "global_ht": global_ht,
    "round_ht": round_ht,
}
"""By name; `batches` is still to be given its batch size."""
