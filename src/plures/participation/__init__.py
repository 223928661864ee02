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

__all__ = [
    "SAMPLERS",
    "Cohort",
    "Sampler",
    "all_clients",
    "as_sampler",
    "binomial",
    "random_size",
    "round_robin",
    "uniform",
]
