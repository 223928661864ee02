"""What happens on a client: budgets, optimisers, schedules, penalties, views and uploads."""

from plures.local.budgets import FULL, epochs, query, steps, support
from plures.local.heads import cached_descent
from plures.local.newcomers import own_visits
from plures.local.newton import newton_head
from plures.local.optimizers import OPTIMIZERS, adam, as_optimizer, clip_by_norm, sgd
from plures.local.penalties import add, proximal, pull_to_initial, twin_distance
from plures.local.schedules import (
    SCHEDULES,
    as_schedule,
    constant,
    cosine,
    exponential,
    inverse_sqrt,
    linear,
    power,
)
from plures.local.starts import start_from_received, uniform_start
from plures.local.uploads import delta, gradient
from plures.local.views import original, twin, twin_of, with_twin

__all__ = [
    "FULL",
    "OPTIMIZERS",
    "SCHEDULES",
    "adam",
    "add",
    "as_optimizer",
    "as_schedule",
    "cached_descent",
    "clip_by_norm",
    "constant",
    "cosine",
    "delta",
    "epochs",
    "exponential",
    "gradient",
    "inverse_sqrt",
    "linear",
    "newton_head",
    "original",
    "own_visits",
    "power",
    "proximal",
    "pull_to_initial",
    "query",
    "sgd",
    "start_from_received",
    "steps",
    "support",
    "twin",
    "twin_distance",
    "twin_of",
    "uniform_start",
    "with_twin",
]
