"""Who takes part in a round."""

from plures.participation.cohorts import (
    SAMPLERS,
    Cohort,
    Sampler,
    all_clients,
    as_sampler,
    binomial,
    random_size,
    round_robin,
    uniform,
)
from plures.participation.faults import FAULTS, Fault, Faults
from plures.participation.over_selection import OverSelection, over_select
from plures.participation.tampering import ATTACKS, Attack

__all__ = [
    "ATTACKS",
    "FAULTS",
    "SAMPLERS",
    "Attack",
    "Cohort",
    "Fault",
    "Faults",
    "OverSelection",
    "Sampler",
    "all_clients",
    "as_sampler",
    "binomial",
    "over_select",
    "random_size",
    "round_robin",
    "uniform",
]
